package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Counts checks that Redis counted as many holds of an owner as it had, each time somebody looked
// while nothing was in progress.
func Counts(ops []history.Op) error {
	for _, op := range ops {
		if op.Outcome == history.Done && op.Holder == op.Acquisition && op.Units != op.InUse {
			return fmt.Errorf("%d holds counted in Redis, of %d:\n%v", op.Units, op.InUse, op)
		}
	}
	return nil
}

// Removed checks that no more waiters were notified of their removal from a queue than operators
// may have removed.
func Removed(ops []history.Op, most int) error {
	for _, op := range ops {
		if op.Outcome != history.Removed {
			continue
		}
		if most--; most < 0 {
			return fmt.Errorf("notified of a removal that no operator made:\n%v", op)
		}
	}
	return nil
}

// Death is the crash of a client, and the lease of what it held.
type Death struct {
	Client int
	At     int64
	Lease  time.Duration
}

// Inherited checks locks of which a crashed client had the only holds. Each has to go to a waiter
// in the queue within the given time after the end of its lease. Waiters that may have been
// notified too late, or may have had the lock in between, are excused. The check does not judge
// histories in which a crashed client waited, because that costs the others a heartbeat.
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
		mayWait := op.Queued != 0 || op.Kind == history.Acquire && op.Outcome != history.Done // in the queue, without an answer yet
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

// Overtaken checks that at most one other grant, by whatever kind of lock, got ahead of a waiter
// later than within after the waiter had been notified of its place. That one may have been in
// flight. The goroutines of one process may hand the lock to each other for that time from when
// they learned that Redis had granted it, which is late after a lost reply. process returns the
// process of an operation. Waiters that Redis may have taken for crashed are excused.
func Overtaken(ops []history.Op, within time.Duration, process func(history.Op) int, excused func(history.Op) bool) (err error) {
	granted := firstGrants(ops)
	slices.SortFunc(granted, func(a, b history.Op) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, waiter := range ops {
		if waiter.Queued == 0 || excused(waiter) {
			continue
		}
		passed := 0
		var learned int64 // when the process that has the lock learned that it got it
		for i, other := range granted {
			if i == 0 || process(granted[i-1]) != process(other) {
				learned = other.Return
			}
			before := other.Return < waited(waiter)
			if waiter.Outcome == history.Done {
				before = other.Fence < waiter.Fence
			}
			late := other.Return > max(learned, waiter.Queued)+int64(within)
			if before && late && other.Client != waiter.Client && waiter.Queued < other.Call {
				passed++
			}
		}
		if passed > 1 {
			err = errors.Join(err, fmt.Errorf("passed over %d times, later than %v after it got its place:\n%v", passed, within, waiter))
		}
	}
	return err
}
