package check

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
)

// Expiring makes the end of a lease an operation, so that Linearizable can judge histories in which
// leases end. If a release reported a loss, the lock became free at some point after the grant.
// That may be before the answer to the grant, because a stopped client gets the answer late. It was
// free at the latest a lease after the answer to the release, because an unanswered renewal may
// have been the last command. If the outcome of a release is unknown, the lock may have become free
// since its call. A re-entry that reported a loss adds nothing, because the release will.
func Expiring(ops []history.Op, lease time.Duration) (out []history.Op) {
	asked := map[string]int64{} // when the last grant was requested, by acquisition
	for _, op := range ops {
		switch {
		case op.Kind != history.Release && op.Outcome == history.Lost:
			continue
		case op.Kind != history.Release && op.Outcome == history.Done:
			asked[op.Acquisition] = op.Call
		case op.Kind == history.Release && op.Outcome == history.Lost:
			op.Kind, op.Outcome, op.Call = history.Free, history.Done, asked[op.Acquisition]+1
			op.Return += lease.Nanoseconds()
		case op.Kind == history.Release && op.Outcome == history.Unknown:
			op.Kind = history.Free
		case op.Outcome == history.Removed: // it got nothing
			op.Outcome = history.Nothing
		}
		out = append(out, op)
	}
	return out
}

// Abandoned adds that holds without a release may end at any time.
func Abandoned(ops []history.Op) []history.Op {
	open := map[string]int{} // number of holds, by acquisition
	last := map[string]history.Op{}
	for _, op := range ops {
		switch {
		case op.Kind == history.Release:
			open[op.Acquisition]--
		case op.Outcome == history.Done:
			open[op.Acquisition]++
			last[op.Acquisition] = op
		}
	}
	out := slices.Clone(ops)
	for acquisition, op := range last {
		if open[acquisition] > 0 {
			op.Kind, op.Outcome, op.Call, op.Return = history.Free, history.Unknown, op.Return+1, history.Never
			out = append(out, op)
		}
	}
	return out
}

// Unnotified excuses refusals that name the acquisition which another waiting call got in the end.
// That call may have had the lock before: it did not get the answer, the lease ended, and Redis
// granted the lock again, as the same acquisition. If Redis granted it as another acquisition, the
// refusal names one that no client knows of. deaf reports the calls to which that may have
// happened.
func Unnotified(ops []history.Op, deaf func(op history.Op) bool) []history.Op {
	answered := map[string]bool{}
	for _, op := range ops {
		answered[op.Acquisition] = true
	}
	return excused(ops, func(r, op history.Op) bool {
		named := op.Acquisition == r.Holder || !answered[r.Holder]
		return named && op.Owner != r.Owner && op.Call < r.Return && r.Call < op.Return && deaf(op)
	})
}

// Delayed excuses refusals that name an acquisition which had been released. An attempt of its
// request may have been on the way for longer than another one took to be granted. Redis then
// grants the lock again to the same acquisition, and the client releases that in the background.
// delayed reports the calls to which that may have happened.
func Delayed(ops []history.Op, delayed func(op history.Op) bool) []history.Op {
	return excused(ops, func(r, op history.Op) bool {
		return op.Outcome == history.Done && op.Acquisition == r.Holder && op.Return < r.Call && delayed(op)
	})
}

// excused marks the refusals that a request excuses. Adding the grant of that request to the
// history would say the same, but a search that tries each subset of such grants does not end.
func excused(ops []history.Op, by func(refusal, request history.Op) bool) []history.Op {
	out := slices.Clone(ops)
	for i, r := range out {
		if r.Outcome != history.Refused {
			continue
		}
		out[i].Excused = r.Excused || slices.ContainsFunc(ops, func(op history.Op) bool {
			return (op.Kind == history.Acquire || op.Kind == history.Try) && by(r, op)
		})
	}
	return out
}

// Grants removes refusals and places in queues from a history in which leases end. It is for locks
// whose refusals show grants that no client knows of; see Unnotified.
func Grants(ops []history.Op) []history.Op {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Queued, ops[i].Again = 0, 0
		if ops[i].Outcome == history.Refused {
			ops[i].Outcome = history.Nothing
		}
	}
	return ops
}
