package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/history"
)

// Order says whether nobody passed over a waiter who had been told of its place
// before the other one asked. The fences say who was granted first; who gave up was
// passed over if the other one had the lock before. It bears expiry, but no loss of
// data: excused are those whose heartbeats may have been kept away, and who may have
// lost their place because of that.
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

// Prompt says whether a lock that was given back went to one who waited within that
// long. Excused are those who may have heard of it too late. Such a one may also have
// had the lock in between: while it asks, and afterwards unless it was told all.
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

// givenBack is the last release of a grant, if the client was told of each.
func givenBack(ops []history.Op, grant history.Op) (last history.Op, known bool) {
	known = true
	for _, op := range ops {
		if op.Kind == history.Release && op.Acquisition == grant.Acquisition {
			last, known = op, known && op.Outcome == history.Done
		}
	}
	return last, known && last.Call != 0
}

// waited is up to when an acquire waited for sure.
func waited(op history.Op) int64 {
	if op.Outcome == history.Done {
		return op.Return
	}
	return op.GaveUp
}

// firstGrants are what was granted, without re-entries, which wait for nobody.
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
