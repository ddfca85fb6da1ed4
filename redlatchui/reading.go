package redlatchui

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

// reading is what Redis said of all names. It does not change, so viewers share it.
type reading struct {
	rows          []catalog.Row
	truncated     bool      // there may be more names
	busyTruncated bool      // and names among them that somebody holds or waits for
	listed        time.Time // of the last good reading of all names, by this program's clock; zero: there was none
	server        time.Time // the server's clock at that time
	err           error     // why the last attempt to read all names failed
	rowsErr       error     // why the last attempt to read the visible rows failed
	unreadable    int       // names whose state Redis did not show
	lastError     error     // of these

	mu    sync.Mutex
	lists map[listKey][]int // sorted and filtered indexes of rows
}

// now returns the server's clock, as far as it is known.
func (r *reading) now() time.Time {
	if r.listed.IsZero() {
		return time.Now()
	}
	return r.server.Add(time.Since(r.listed))
}

// copy returns the reading without its rows and lists.
func (r *reading) copy() *reading {
	return &reading{
		truncated: r.truncated, busyTruncated: r.busyTruncated, listed: r.listed, server: r.server, err: r.err, rowsErr: r.rowsErr, unreadable: r.unreadable, lastError: r.lastError,
	}
}

// failed returns the reading with an error. It keeps the rows of the last good one.
func (r *reading) failed(err error) *reading {
	next := r.copy()
	next.rows, next.err = r.rows, err
	return next
}

// problem is why the page may be old, or nil.
func (r *reading) problem() error {
	if r.err != nil {
		return r.err
	}
	return r.rowsErr
}

// listKey says which rows a list has, and in which order.
type listKey struct{ text, show, sort string }

const (
	showBusy    = "busy"
	showWaiting = "waiting"
	showLimit   = "limit"
	showAll     = "all"

	sortWaiters = "waiters"
	sortOldest  = "oldest"
	sortHeld    = "held"
	sortName    = "name"
)

// list returns the indexes of the rows of a list. Viewers of the same list share the work.
func (r *reading) list(key listKey) []int {
	const mostLists = 200 // filters come from viewers
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.lists[key]; ok {
		return found
	}
	found := []int{}
	text := strings.ToLower(key.text)
	for i := range r.rows {
		if isShown(&r.rows[i], key.show) && strings.Contains(strings.ToLower(display.Safe(r.rows[i].Name)), text) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b int) int { return compareRows(&r.rows[a], &r.rows[b], key.sort) })
	if r.lists == nil {
		r.lists = map[listKey][]int{}
	}
	if len(r.lists) < mostLists {
		r.lists[key] = found
	}
	return found
}

func isShown(r *catalog.Row, show string) bool {
	switch show {
	case showWaiting:
		return r.Waiting > 0 || r.Listeners > 0
	case showLimit:
		return r.AtLimit()
	case showAll:
		return true
	}
	return r.Held || r.Waiting > 0 || r.Err != nil
}

func compareRows(a, b *catalog.Row, by string) int {
	byName := cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	byWaiters := cmp.Or(b.Waiting-a.Waiting, b.Listeners-a.Listeners)
	byOldest := earliest(a.Oldest, b.Oldest)
	switch by {
	case sortOldest:
		return cmp.Or(byOldest, byWaiters, byName)
	case sortHeld:
		return cmp.Or(earliest(a.Since, b.Since), byName)
	case sortName:
		return byName
	}
	return cmp.Or(byWaiters, byOldest, byName)
}

// earliest sorts times that are not known last.
func earliest(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

// counts are the numbers of the cards.
type counts struct {
	held, atLimit, waiting, listeners int
	oldest                            *catalog.Row // with the oldest wait; nil: nobody waits in a queue
}

func (r *reading) counts() (c counts) {
	for i := range r.rows {
		row := &r.rows[i]
		if row.Held && !row.Kept {
			c.held++
		}
		if row.AtLimit() {
			c.atLimit++
		}
		c.waiting += row.Waiting
		c.listeners += row.Listeners
		if !row.Oldest.IsZero() && (c.oldest == nil || row.Oldest.Before(c.oldest.Oldest)) {
			c.oldest = row
		}
	}
	return c
}
