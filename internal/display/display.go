// Package display makes text for people of what Redis has, for the command line and for pages that
// show locks.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/oneline"
)

// Safe returns foreign text as it may be shown: one line, without characters that control a
// terminal, change the direction or cannot be seen. These are shown as in a Go string. The text is
// not escaped for HTML.
func Safe(text string) string {
	text = oneline.OneLine(text)
	var b strings.Builder
	for _, r := range text {
		if oneline.IsInvisible(r) {
			b.WriteString(strings.Trim(strconv.QuoteToASCII(string(r)), `"`))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Short returns safe text of most characters at most, for a column of a table.
func Short(text string, most int) string {
	text = Safe(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// Holder returns the id of a holder or a waiter, and its description if it has one.
func Holder(id, description string) string {
	if description == "" {
		return id
	}
	return id + " (" + description + ")"
}

// Age returns a duration with two units at most, such as 3m5s or 2d4h.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// AgeSince is empty for a time that is not known.
func AgeSince(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return Age(now.Sub(since))
}

// LeaseLeft returns what is left of a lease. A negative lease has no end.
func LeaseLeft(d time.Duration) string {
	if d < 0 {
		return "no end"
	}
	return Age(d)
}
