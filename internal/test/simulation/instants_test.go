package simulation_test

import (
	"sort"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
)

// instants knows which readings of a recorder's clock are of one instant of virtual time.
type instants struct {
	mu     sync.Mutex
	now    time.Duration
	firsts []int64 // the first reading of each instant
}

// clock is [history.Since], which notes the instants.
func (i *instants) clock(start time.Time) history.Clock {
	read := history.Since(start)
	return func() int64 {
		i.mu.Lock()
		defer i.mu.Unlock()
		reading := read()
		if now := time.Since(start); len(i.firsts) == 0 || now != i.now {
			i.now = now
			i.firsts = append(i.firsts, reading)
		}
		return reading
	}
}

// first returns the first reading of the instant of a reading.
func (i *instants) first(reading int64) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := sort.Search(len(i.firsts), func(n int) bool { return i.firsts[n] > reading })
	return i.firsts[max(next-1, 0)]
}

// widen has refused waits of mutexes begin with their instant. A Lock that gets no answer names
// whom Redis named to another waiter of its client, if that one asked after the Lock had begun. Of
// calls at one instant, the library does not know which was first: only in a bubble does a command
// take no time. A waiter in a queue has an answer of its own, and so does each request for permits.
func (i *instants) widen(h history.History) {
	for n := range h.Ops {
		op := &h.Ops[n]
		if op.Kind == history.Acquire && op.Outcome == history.Refused && op.Queued == 0 && op.Units == 0 {
			op.Call = i.first(op.Call)
		}
	}
}
