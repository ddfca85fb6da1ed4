package check

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/history"
)

// Expiring makes the end of a lease an operation, so that histories in which leases
// end can be judged. A release that was told of a loss says that the lock became free
// at some point after the grant, which may be before that was answered: who was stopped
// hears of it late. And at the latest a lease after the release was told: a renewal
// that nobody heard the answer of may have been the last word. One whose outcome nobody
// knows says that it may have become free since then. A re-entry that was told of a
// loss says nothing: the release will.
func Expiring(ops []history.Op, lease time.Duration) (out []history.Op) {
	asked := map[string]int64{} // when the last grant was, by acquisition
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
		}
		out = append(out, op)
	}
	return out
}

// Abandoned adds, for holds that nobody has given back, that they may end at any time.
func Abandoned(ops []history.Op) []history.Op {
	open := map[string]int{} // holds, by acquisition
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

// Unheard adds, for refusals that name what the waiting call of another was granted in
// the end, that it may have had it before: it never heard of that, the lease ended, and
// it was granted anew, as the same acquisition. Or as another: then the refusal names
// one that nobody was ever told of. Deaf are those to whom that may have happened.
func Unheard(ops []history.Op, deaf func(op history.Op) bool) []history.Op {
	told := map[string]bool{}
	for _, op := range ops {
		told[op.Acquisition] = true
	}
	out := slices.Clone(ops)
	for _, r := range ops {
		begun := int64(history.Never)
		for _, op := range ops {
			asks := op.Kind == history.Acquire || op.Kind == history.Try
			named := op.Acquisition == r.Holder || !told[r.Holder]
			if asks && named && op.Owner != r.Owner && op.Return > r.Call && deaf(op) {
				begun = min(begun, op.Call)
			}
		}
		if r.Outcome == history.Refused && begun < r.Return {
			out = append(out, history.Op{
				Client: r.Client, Name: r.Name, Owner: r.Holder, Kind: history.Acquire, Outcome: history.Unknown, Call: begun, Return: r.Return,
			})
		}
	}
	return out
}

// Grants takes refusals and places in queues out of a history in which leases end, for
// locks whose refusals would say too much about what nobody heard of: see Unheard.
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
