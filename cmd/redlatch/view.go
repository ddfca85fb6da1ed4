package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// say prints a line for people.
func (a *app) say(format string, args ...any) {
	text := display.Safe(fmt.Sprintf(format, args...))
	fmt.Fprintln(a.errOut, "redlatch: "+strings.TrimPrefix(text, "redlatch: ")) // errors of the library begin with it
}

func quoted(text string) string { return strconv.Quote(text) }

// table writes aligned columns. A row without its last cells gets empty ones, because a column of
// tabwriter ends at the first line without it.
func table(w io.Writer, header []string, rows [][]string) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		missing := strings.Repeat("\t", max(len(header)-len(row), 0))
		fmt.Fprintln(t, strings.Join(row, "\t")+missing)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON also escapes what must not reach a terminal, which JSON allows inside of strings.
func writeJSON(w io.Writer, value any) error {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range text.String() {
		if r < utf8.RuneSelf && r != '\x7f' || strconv.IsPrint(r) && !oneline.IsInvisible(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// nameJSON is the state of one name, in the output of --json. Times are those of the server.
// Durations are seconds.
type nameJSON struct {
	Name      string         `json:"name"`
	Kinds     []string       `json:"kinds"`
	Error     string         `json:"error,omitempty"`
	Mutex     *mutexJSON     `json:"mutex,omitempty"`
	Semaphore *semaphoreJSON `json:"semaphore,omitempty"`
}

type mutexJSON struct {
	Held        bool         `json:"held"`
	Kept        bool         `json:"kept"` // nobody holds it, and Redis keeps it for a while
	Holder      string       `json:"holder,omitempty"`
	Description string       `json:"description,omitempty"`
	Holds       int          `json:"holds,omitempty"`
	Since       *time.Time   `json:"since,omitempty"`
	HeldFor     float64      `json:"held_for,omitempty"`
	LeaseLeft   *float64     `json:"lease_left,omitempty"` // absent: nobody holds it, or the lease has no end
	Fence       int64        `json:"fence,omitempty"`
	Waiting     int          `json:"waiting"` // in the queue
	Waiters     []waiterJSON `json:"waiters,omitempty"`
	Subscribers *int         `json:"subscribers,omitempty"` // clients that listen for a release
	Alive       string       `json:"alive,omitempty"`       // with --alive
}

type waiterJSON struct {
	ID            string    `json:"id"`
	Description   string    `json:"description"`
	Units         int       `json:"units"`
	Since         time.Time `json:"since"`
	WaitsFor      float64   `json:"waits_for"`
	Heartbeat     float64   `json:"heartbeat"`
	HeartbeatLeft float64   `json:"heartbeat_left"` // 0: it counts as crashed
}

type semaphoreJSON struct {
	Limit    int          `json:"limit"`
	Declared int          `json:"declared"`
	InUse    int          `json:"in_use"`
	Waiting  int          `json:"waiting"`
	Permits  []permitJSON `json:"permits,omitempty"`
	Waiters  []waiterJSON `json:"waiters,omitempty"`
}

type permitJSON struct {
	ID          string     `json:"id"`
	Description string     `json:"description"`
	Units       int        `json:"units"`
	Kept        bool       `json:"kept"`
	Since       *time.Time `json:"since,omitempty"`
	HeldFor     float64    `json:"held_for,omitempty"`
	LeaseLeft   float64    `json:"lease_left"`
}

func toJSON(s *catalog.State, now time.Time) nameJSON {
	n := nameJSON{Name: s.Name, Kinds: append([]string{}, s.Kinds.Names()...)}
	if s.Err != nil {
		n.Error = s.Err.Error()
		return n
	}
	if s.Kinds.Has(catalog.Mutex) {
		n.Mutex = mutexToJSON(&s.Lock, now)
		n.Mutex.Waiting, n.Mutex.Waiters = s.Waiting, waitersToJSON(s.Waiters, now)
		if s.Subscribers >= 0 {
			n.Mutex.Subscribers = &s.Subscribers
		}
	}
	if s.Kinds.Has(catalog.Semaphore) {
		n.Semaphore = &semaphoreJSON{
			Limit: s.Permits.Limit, Declared: s.Permits.Declared, InUse: s.Permits.InUse, Waiting: s.Permits.Waiting,
			Permits: permitsToJSON(s.Permits.Holders, now), Waiters: waitersToJSON(s.PermitWaiters, now),
		}
	}
	return n
}

func mutexToJSON(info *lock.Info, now time.Time) *mutexJSON {
	m := &mutexJSON{
		Held: info.Held(), Kept: info.IsKept(), Holder: info.Holder, Description: info.Description, Holds: info.Holds, Fence: info.Fence,
		Since: known(info.Since),
	}
	if m.Since != nil {
		m.HeldFor = now.Sub(info.Since).Seconds()
	}
	if left := info.Remaining.Seconds(); info.Held() && left >= 0 {
		m.LeaseLeft = &left
	}
	return m
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func waitersToJSON(waiters []lock.Waiter, now time.Time) (all []waiterJSON) {
	for _, w := range waiters {
		all = append(all, waiterJSON{
			ID: w.ID, Description: w.Description, Units: w.Units, Since: w.Since, WaitsFor: now.Sub(w.Since).Seconds(),
			Heartbeat: w.Heartbeat.Seconds(), HeartbeatLeft: w.HeartbeatLeft.Seconds(),
		})
	}
	return all
}

func permitsToJSON(holders []semaphore.Holder, now time.Time) (all []permitJSON) {
	for i := range holders {
		h := &holders[i]
		p := permitJSON{ID: h.ID, Description: h.Description, Units: h.Units, Kept: h.IsKept(), Since: known(h.Since), LeaseLeft: h.Remaining.Seconds()}
		if p.Since != nil {
			p.HeldFor = now.Sub(h.Since).Seconds()
		}
		all = append(all, p)
	}
	return all
}
