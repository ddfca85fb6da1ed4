package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/history"
)

// Counts says whether Redis counted as many holds of an owner as it had, whenever
// somebody looked while nothing was under way.
func Counts(ops []history.Op) error {
	for _, op := range ops {
		if op.Outcome == history.Done && op.Holder == op.Acquisition && op.Units != op.InUse {
			return fmt.Errorf("%d holds counted in Redis, of %d:\n%v", op.Units, op.InUse, op)
		}
	}
	return nil
}

// Removed says whether nobody was told to have been taken out of a queue, where nobody
// does that.
func Removed(ops []history.Op) error {
	for _, op := range ops {
		if op.Outcome == history.Removed {
			return fmt.Errorf("told that it was removed:\n%v", op)
		}
	}
	return nil
}

// Death is the end of a client, with what it had for so long a lease.
type Death struct {
	Client int
	At     int64
	Lease  time.Duration
}

// Inherited says whether what a dead client held, alone, went to one who waited in the
// queue when its lease was over, or at most that much later. Excused are those who may
// have heard of it too late, or may have had the lock in between; and nothing is said
// where a dead client waited, which costs the others a heartbeat.
func Inherited(ops []history.Op, deaths []Death, within time.Duration, excused func(history.Op) bool) error {
	died := map[int]Death{}
	for _, d := range deaths {
		died[d.Client] = d
	}
	unfair := func(op history.Op) bool {
		_, dead := died[op.Client]
		return excused(op) && !dead
	}
	if slices.ContainsFunc(ops, func(op history.Op) bool {
		d, dead := died[op.Client]
		mayWait := op.Queued != 0 || op.Kind == history.Acquire && op.Outcome != history.Done // in the queue, and not told yet
		return dead && mayWait && op.Return > d.At || unfair(op)
	}) {
		return nil
	}
	granted := firstGrants(ops)
	slices.SortFunc(granted, func(a, b history.Op) int { return cmp.Compare(a.Fence, b.Fence) })
	for i, holder := range granted {
		d, dead := died[holder.Client]
		if !dead || holder.Return > d.At || wasReleased(ops, holder) {
			continue
		}
		limit := d.At + d.Lease.Nanoseconds() + within.Nanoseconds()
		if i+1 < len(granted) && granted[i+1].Return <= limit {
			continue
		}
		for _, op := range ops {
			if op.Queued != 0 && op.Queued < d.At && waited(op) > limit {
				return fmt.Errorf("not free a lease after its holder died at %d:\n%v\nthough there was\n%v", d.At, holder, op)
			}
		}
	}
	return nil
}

func wasReleased(ops []history.Op, grant history.Op) bool {
	return slices.ContainsFunc(ops, func(op history.Op) bool {
		return op.Kind == history.Release && op.Acquisition == grant.Acquisition
	})
}

// Overtaken says whether nobody who waited in a queue was passed over more often than
// that, by whatever kind of lock, after it had been told of its place. Excused are
// those who may not have been heard of.
func Overtaken(ops []history.Op, most int, excused func(history.Op) bool) (err error) {
	granted := firstGrants(ops)
	for _, waiter := range ops {
		if waiter.Queued == 0 || excused(waiter) {
			continue
		}
		passed := 0
		for _, other := range granted {
			before := other.Return < waited(waiter)
			if waiter.Outcome == history.Done {
				before = other.Fence < waiter.Fence
			}
			if before && other.Client != waiter.Client && waiter.Queued < other.Call {
				passed++
			}
		}
		if passed > most {
			err = errors.Join(err, fmt.Errorf("passed over %d times:\n%v", passed, waiter))
		}
	}
	return err
}
