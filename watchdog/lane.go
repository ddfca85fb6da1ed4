package watchdog

import (
	"slices"
	"time"
)

// laneKey says which leases share a lane: those that may share a call and have the same interval.
// The interval is part of the key because the time limit of a call follows from it. Among mixed
// leases the shortest would cut the time of all, and the longest would keep the shortest from its
// retries.
type laneKey struct {
	group int
	every time.Duration
}

// lane holds leases that may share one call.
type lane struct {
	laneKey
	leases  heap[*Lease] // by what is due
	line    []*Lease     // due, in order; skips those stopped meanwhile
	calls   int          // in flight, without those given up
	place   int          // in the watchdog's heap
	lined   bool         // in the watchdog's line
	failing bool         // the last call failed as a whole; reported once
}

func (ln *lane) placed(i int) { ln.place = i }

// take picks the next batch: first the leases in line, then, if there is room, those that will be
// due soon. To ask early without room would make more calls, not fewer.
func (ln *lane) take(now int64, size int) []*Lease {
	var batch []*Lease
	for len(ln.line) > 0 && len(batch) < size {
		if l := ln.line[0]; l.state == waiting {
			batch = append(batch, l)
		}
		ln.line = ln.line[1:]
	}
	if len(ln.line) == 0 {
		ln.line = nil // let go of the array
	}
	soon := later(now, ln.every/coalesce)
	for len(batch) > 0 && len(batch) < size && ln.leases.first() <= soon {
		l := ln.leases[0].of
		if l.state != idle {
			break // an end of trust, which is never early
		}
		l.state = waiting
		ln.leases.fix(0, l.due())
		batch = append(batch, l)
	}
	return batch
}

// all returns a copy, because the heap moves when a lease is due at another time.
func (ln *lane) all() []*Lease {
	leases := make([]*Lease, len(ln.leases))
	for i, s := range ln.leases {
		leases[i] = s.of
	}
	return leases
}

// Hurry makes every lease of these groups due now, in the usual batches. It is for a caller that
// may have missed news of them. It does not block.
func (w *Watchdog) Hurry(is func(group int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().mono
	for _, ln := range w.lanes {
		if !is(ln.group) {
			continue
		}
		for _, l := range ln.all() {
			l.next = min(l.next, now)
			w.replace(l)
		}
		w.nudge(ln.leases.first())
	}
}

// Regroup puts every lease into the group that of returns for its key and its present group. It is
// for a caller that learns later which leases may share a call. Calls in flight go on as they are.
func (w *Watchdog) Regroup(of func(key string, group int) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := map[*Lease]laneKey{}
	for _, ln := range w.lanes {
		for _, s := range ln.leases {
			if group := of(s.of.key, ln.group); group != ln.group {
				moved[s.of] = laneKey{group, ln.every}
			}
		}
	}
	for l, to := range moved {
		w.move(l, to)
	}
	for _, ln := range w.lanes {
		ln.line = slices.DeleteFunc(ln.line, func(l *Lease) bool { return l.lane != ln })
	}
}

// move puts l into another lane. If it waited for a call, it is due there at once.
func (w *Watchdog) move(l *Lease, to laneKey) {
	w.drop(l)
	if l.state == waiting {
		l.state = idle
	}
	w.add(l, to)
}
