package display

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSafeShowsWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orders:42":       "orders:42",
		"täg🔒":            "täg🔒",
		"two\nlines":      `two\nlines`,
		"\x1b[2J":         `\x1b[2J`,
		"a\u202eb":        `a\u202eb`,
		"\xff":            `\xff`,
		"blank\u2800":     `blank\u2800`,
		"<script>x</b>&'": "<script>x</b>&'",
	} {
		require.Equal(t, want, Safe(text))
	}
	require.Equal(t, "aaaa…", Short(strings.Repeat("a", 9), 5))
	require.Equal(t, "ääääa", Short("ääääa", 5))
}

func TestAgesHaveTwoUnitsAtMost(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                     "0.0s",
		1990 * time.Millisecond:          "1.9s",
		59999 * time.Millisecond:         "59s",
		185 * time.Second:                "3m5s",
		26 * time.Hour:                   "1d2h",
		time.Hour + 90*time.Second:       "1h1m",
		10*time.Second - time.Nanosecond: "9.9s",
	} {
		require.Equal(t, want, Age(d))
	}
	require.Empty(t, AgeSince(time.Time{}, time.Now()))
	require.Equal(t, "no end", LeaseLeft(-1))
	require.Equal(t, "1-2:3", Holder("1-2:3", ""))
	require.Equal(t, "1-2:3 (host)", Holder("1-2:3", "host"))
}
