package watchdog

import "time"

// laneKey says which leases share a lane: those that may share a call and have
// the same interval. The interval is part of it because the time a call gets
// follows from it: among mixed leases the shortest would cut the patience of
// all, and the longest would keep the shortest from its retries.
type laneKey struct {
	group int
	every time.Duration
}

// lane holds leases that may be asked for in one call.
type lane struct {
	laneKey
	leases  heap[*Lease] // by what is due
	line    []*Lease     // due, in order; those stopped meanwhile are passed over
	calls   int          // under way, without those given up
	place   int          // in the watchdog's heap
	lined   bool         // in the watchdog's line
	failing bool         // the last call failed as a whole; reported once
}

func (ln *lane) placed(i int) { ln.place = i }

// take picks the next batch: first those in line, then, where there is room,
// those that will be due soon. Only where there is room, since asking early
// without need would make more calls of it, not fewer.
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
