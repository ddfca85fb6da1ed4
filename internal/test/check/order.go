package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Order checks that nobody got ahead of a waiter that had been notified of its place before the
// other request began. The fences show who got the lock first. If the waiter gave up, the other got
// ahead of it if it had the lock before. Holds may expire, but Redis must not lose data. Waiters
// whose heartbeats may have been lost are excused, because they may have lost their place.
func Order(ops []history.Op, excused func(history.Op) bool) error {
	granted := firstGrants(ops)
	for _, waiter := range ops {
		if waiter.Queued == 0 || excused(waiter) {
			continue
		}
		if waiter.Again != 0 {
			return fmt.Errorf("lost its place without reason:\n%v", waiter)
		}
		for _, other := range granted {
			before := other.Return < waited(waiter)
			if waiter.Outcome == history.Done {
				before = other.Fence < waiter.Fence
			}
			if before && waiter.Queued < other.Call {
				return fmt.Errorf("passed over:\n%v\nby\n%v", waiter, other)
			}
		}
	}
	return nil
}

// Prompt checks that a released lock went to a waiter within the given time. Waiters that may have
// been notified too late are excused. Such a waiter may also have had the lock in between: while it
// asks, and later unless it got every answer.
func Prompt(ops []history.Op, within time.Duration, excused func(history.Op) bool) error {
	granted := firstGrants(ops)
	slices.SortFunc(granted, func(a, b history.Op) int { return cmp.Compare(a.Fence, b.Fence) })
	for i, holder := range granted {
		end, known := givenBack(ops, holder)
		limit := end.Return + within.Nanoseconds()
		switch {
		case !known, excused(holder), i+1 < len(granted) && granted[i+1].Return <= limit:
			continue
		case slices.ContainsFunc(ops, func(op history.Op) bool {
			return excused(op) && op.Call < limit && (op.Return > end.Call || op.Outcome != history.Done)
		}):
			continue
		}
		for _, op := range ops {
			if op.Queued != 0 && op.Queued < end.Call && waited(op) > limit {
				return fmt.Errorf("free for too long after\n%v\nthough there was\n%v", end, op)
			}
		}
	}
	return nil
}

// givenBack is the last release of a grant. known reports whether all its releases succeeded.
func givenBack(ops []history.Op, grant history.Op) (last history.Op, known bool) {
	known = true
	for _, op := range ops {
		if op.Kind == history.Release && op.Acquisition == grant.Acquisition {
			last, known = op, known && op.Outcome == history.Done
		}
	}
	return last, known && last.Call != 0
}

// waited is the time until which an acquire certainly waited.
func waited(op history.Op) int64 {
	if op.Outcome == history.Done {
		return op.Return
	}
	return op.GaveUp
}

// firstGrants returns the grants without re-entries, which wait for nobody.
func firstGrants(ops []history.Op) (grants []history.Op) {
	entered := map[string]bool{}
	for _, op := range ops {
		if (op.Kind == history.Acquire || op.Kind == history.Try) && op.Outcome == history.Done && !entered[op.Acquisition] {
			entered[op.Acquisition] = true
			grants = append(grants, op)
		}
	}
	return grants
}
