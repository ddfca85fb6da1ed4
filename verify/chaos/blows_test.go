//go:build unix

package chaos_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// blow is a span in which a worker was stopped or killed. It begins before the signal, and ends
// after the signal that lets the worker go on, because nobody knows when a signal arrives.
type blow struct {
	client    int
	at, until int64
	deadly    bool
}

// met counts the blows that hit a worker while it did the given thing.
func met(h history.History, blows []blow, doing string) (n int) {
	for _, b := range blows {
		if doingAt(h, b) == doing {
			n++
		}
	}
	return n
}

func doingAt(h history.History, b blow) string {
	last := "" // the state that the last call before the blow shows
	for _, op := range h.Ops {
		if op.Client != b.client || op.Call > b.at {
			continue
		}
		switch {
		case op.Kind == history.Release && op.Return > b.at:
			last = "unlocking"
		case op.Kind == history.Acquire && op.Return > b.at:
			last = "waiting"
		case op.Kind == history.Acquire && op.Outcome == history.Done:
			last = "holding"
		default:
			last = "between"
		}
	}
	return last
}

// withExpiry is check.Expiring, plus the effects of blows. If a process died, whatever it held may
// have become free since then. If the process of a waiter was stopped or killed, the waiter may
// have lost its place since then. The same holds for a waiter that was notified of the loss of its
// place, because a process that is not stopped may also have to wait for the machine.
func withExpiry(ops []history.Op, blows []blow) (out []history.Op) {
	open := map[string]history.Op{} // grants without release
	for _, op := range ops {
		switch {
		case op.Kind == history.Acquire:
			if since := lostPlace(op, blows); since != 0 {
				if op.Return != history.Never { // else the outcome of the operation is unknown anyway
					out = append(out, freed(op, since, op.Return))
				}
				op.GaveUp = max(op.GaveUp, since)
			}
			if died, at := diedAt(op, blows); died && op.Queued != 0 && op.Again == 0 {
				op.Outcome, op.Return = history.Nothing, at
			}
			op.Again = 0
			if op.Outcome == history.Done {
				open[op.Acquisition] = op
			}
		case op.Kind == history.Release:
			delete(open, op.Acquisition)
		}
		out = append(out, op)
	}
	for _, op := range open {
		for _, b := range blows {
			if b.deadly && b.client == op.Client {
				out = append(out, freed(op, b.at, history.Never))
			}
		}
	}
	return check.Expiring(out, workerLease)
}

// diedAt reports whether the process of a call died before the call returned, and the time by which
// it was dead.
func diedAt(op history.Op, blows []blow) (died bool, at int64) {
	for _, b := range blows {
		if b.deadly && b.client == op.Client && op.Return == history.Never {
			return true, b.until
		}
	}
	return false, 0
}

// lostPlace is the time since when a waiter may have lost its place in a queue. 0: it has not.
func lostPlace(op history.Op, blows []blow) (since int64) {
	switch {
	case op.Queued == 0:
		return 0
	case op.Again != 0:
		return op.Call
	}
	return struckAt(op, blows)
}

// struckAt is the time when the process of a call that was not over was struck first. 0: never.
func struckAt(op history.Op, blows []blow) (at int64) {
	for _, b := range blows {
		if b.client == op.Client && op.Call < b.until && b.at < op.Return && (at == 0 || b.at < at) {
			at = max(b.at, op.Call)
		}
	}
	return at
}

// withUnnotified adds grants and places that a process may have got while it was stopped, if it had
// not been notified of a place before. They ended before the process went on and asked again.
// Others had to wait for them meanwhile.
func withUnnotified(ops []history.Op, blows []blow) []history.Op {
	ops = slices.Clone(ops)
	for _, op := range ops {
		at := struckAt(op, blows)
		if op.Kind == history.Acquire && at != 0 && op.Return != history.Never && (op.Queued == 0 || at < op.Queued) {
			op.Outcome, op.Queued, op.Again, op.Fence = history.Unknown, 0, 0, 0
			op.Owner, op.Acquisition = op.Owner+" not notified", op.Acquisition+" not notified"
			ops = append(ops, op)
		}
	}
	return ops
}

// freed says that the grant or the place of an operation may have ended.
func freed(op history.Op, from, to int64) history.Op {
	op.Kind, op.Outcome, op.Call, op.Return = history.Free, history.Unknown, from, to
	return op
}

// A search that tries all orders in which so many dead waiters may have left does not end.
func TestManyDeadWaiters(t *testing.T) {
	const dead = 24
	done := history.Op{Client: 1, Owner: "1", Kind: history.Acquire, Call: 1, Return: 2, Outcome: history.Done, Fence: 1, Acquisition: "1"}
	ops := []history.Op{done}
	var blows []blow
	for i := range int64(dead) {
		client := int(i) + 2
		ops = append(ops, history.Op{Client: client, Owner: strconv.Itoa(client), Kind: history.Acquire,
			Call: 10*i + 10, Queued: 10*i + 13, GaveUp: 10*i + 200, Return: history.Never})
		blows = append(blows, blow{client, 10*i + 210, 10*i + 300, true})
	}
	released := done
	released.Kind, released.Call, released.Return = history.Release, 700, 800
	last := history.Op{Client: dead + 2, Owner: "last", Kind: history.Acquire, Call: 600, Queued: 610, Return: 900,
		Outcome: history.Done, Fence: 2, Acquisition: "last"}
	ops = append(ops, last, released)
	require.NoError(t, check.Linearizable(withExpiry(ops, blows), check.FairMutex()))

	overtaken := history.Op{Client: dead + 3, Owner: "overtaken", Kind: history.Acquire, Call: 500, Queued: 510, Return: 1000,
		Outcome: history.Done, Fence: 3, Acquisition: "overtaken"}
	require.ErrorContains(t, check.Linearizable(withExpiry(append(ops, overtaken), blows), check.FairMutex()), "(illegal)")
}

// A waiter that was stopped before it was notified of anything may have had the lock, and others
// may have waited for it. Only requests that came while a waiter was stopped may get ahead of it,
// if it was notified of its place.
func TestWhatIsExcusedByBlows(t *testing.T) {
	acquired := func(client int, owner string, from, to, fence int64) history.Op {
		return history.Op{Client: client, Owner: owner, Kind: history.Acquire, Call: from, Return: to,
			Outcome: history.Done, Fence: fence, Acquisition: owner}
	}
	queued := func(at int64, op history.Op) history.Op { op.Queued = at; return op }
	released := func(op history.Op, from, to int64) history.Op {
		op.Kind, op.Call, op.Return, op.Queued = history.Release, from, to, 0
		return op
	}
	holder := acquired(3, "c", 1, 2, 10)
	first, second := acquired(1, "a", 4, 90, 20), queued(11, acquired(2, "b", 10, 50, 15))
	rest := released(second, 60, 70)
	stopped := []blow{{client: 1, at: 5, until: 80}}
	lost := released(holder, 20, 21)
	lost.Outcome = history.Lost
	much := workerLease.Nanoseconds()
	for name, c := range map[string]struct {
		blows   []blow
		ops     []history.Op
		excused bool
	}{
		"granted while it stood, and again at once":           {stopped, []history.Op{first, second, rest}, true},
		"granted while it stood, and queued after that":       {stopped, []history.Op{queued(55, first), second, rest}, true},
		"stopped just as it asked":                            {[]blow{{client: 1, at: 3, until: 80}}, []history.Op{first, second, rest}, true},
		"notified of its place, which it lost as it stood":    {stopped, []history.Op{holder, queued(5, first), second, released(holder, 12, 13), rest}, true},
		"nobody was stopped":                                  {nil, []history.Op{first, second, rest}, false},
		"two at one time":                                     {stopped, []history.Op{first, second, acquired(3, "c", 55, 56, 17), rest}, false},
		"notified of the loss, of what its last renewal kept": {nil, []history.Op{holder, lost, queued(23, acquired(1, "a2", 22, 30, 20))}, true},
		"behind what was lost a lease ago": {nil,
			[]history.Op{holder, lost, queued(much+23, acquired(1, "a2", much+22, much+30, 20))}, false},
		"one that was not stopped is passed over": {stopped,
			[]history.Op{holder, first, queued(4, acquired(4, "d", 3, 95, 25)), second, released(holder, 12, 13), rest}, false},
	} {
		err := check.Linearizable(withExpiry(withUnnotified(c.ops, c.blows), c.blows), check.FairMutex())
		require.Equal(t, c.excused, err == nil, "%s: %v", name, err)
	}
}
