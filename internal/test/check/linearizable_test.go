package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// The goal of this file: the checker accepts the answers that a reentrant fenced mutex may give,
// and rejects others. A checker that rejects nothing would make every other green result worthless.

// told is a call from one instant to another, with its answer.
func told(owner string, k history.Kind, from, to int64, o history.Outcome, fence ...int64) history.Op {
	op := history.Op{Name: "n", Owner: owner, Kind: k, Call: from, Return: to, Outcome: o}
	if len(fence) > 0 {
		op.Fence = fence[0]
	}
	return op
}

// by sets the holder that a refusal names.
func by(holder string, op history.Op) history.Op {
	op.Holder = holder
	return op
}

const (
	acquire, try, release, free                 = history.Acquire, history.Try, history.Release, history.Free
	done, refused, unknown, nothing, lost       = history.Done, history.Refused, history.Unknown, history.Nothing, history.Lost
	never                                 int64 = history.Never
)

type histories map[string][]history.Op

var possible = histories{
	"nothing at all": nil,
	"one after the other": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, done),
		told("b", try, 5, 6, done, 11), told("b", release, 7, 8, done),
	},
	"a waiter gets it when it is released": {
		told("a", acquire, 1, 2, done, 10), told("b", acquire, 3, 9, done, 11), told("a", release, 7, 8, done),
	},
	"again, by its owner, with the same fence": {
		told("a", acquire, 1, 2, done, 10), told("a", try, 3, 4, done, 10),
		told("a", release, 5, 6, done), told("b", try, 7, 8, refused), told("a", release, 9, 10, done),
		told("b", try, 11, 12, done, 30),
	},
	"refused while the release is under way": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 8, done), told("b", try, 4, 5, refused),
	},
	"a grant that nobody was told of, and its refusal of others": {
		told("a", acquire, 1, never, unknown), told("b", try, 5, 6, refused),
	},
	"a grant that nobody was told of, given back in the background": {
		told("a", acquire, 1, never, unknown), told("b", try, 5, 6, refused), told("b", try, 7, 8, done, 10),
	},
	"a grant that nobody was told of, and never was": {
		told("a", acquire, 1, never, unknown), told("b", try, 5, 6, done, 10),
	},
	"a grant that was told only when it was entered again": {
		told("a", acquire, 1, never, unknown), told("a", acquire, 5, 6, done, 10), told("a", acquire, 7, 8, done, 10),
	},
	"a waiter that gave up, whose late grant refused another for a moment": {
		told("a", acquire, 1, 2, done, 10), told("b", acquire, 3, 6, refused), told("a", release, 5, 7, done),
		by("ghost", told("c", try, 8, 9, refused)), told("c", try, 10, 11, done, 12),
	},
	"handed on to one that had just left the line of its process, and a refusal because of that": {
		told("a", acquire, 1, 2, done, 10), told("b", acquire, 3, 6, nothing), told("a", release, 5, 7, done),
		by("ghost", told("c", try, 8, 9, refused)), told("c", try, 10, 11, done, 12),
	},
	"a release whose answer was lost": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, never, unknown), told("b", try, 5, 6, done, 11),
	},
	"a release whose answer was lost, done much later": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, never, unknown), told("b", try, 5, 6, refused), told("b", try, 7, 8, done, 11),
	},
	"all holds at once, by closing": {
		told("a", acquire, 1, 2, done, 10), told("a", acquire, 3, 4, done, 10), told("a", free, 5, 6, done), told("b", try, 7, 8, done, 11),
	},
	"closing what is not held": {told("a", free, 1, 2, done)},
	"what never reached the server": {
		told("a", acquire, 1, 2, done, 10), told("b", acquire, 3, 4, nothing), told("a", release, 5, 6, done),
	},
}

var impossible = histories{
	"two holders": {told("a", acquire, 1, 2, done, 10), told("b", try, 3, 4, done, 11)},
	"two holders, granted at the same time": {
		told("a", acquire, 1, 5, done, 10), told("b", acquire, 1, 5, done, 11), told("a", release, 6, 7, done), told("b", release, 6, 7, done),
	},
	"free though one hold is left": {
		told("a", acquire, 1, 2, done, 10), told("a", acquire, 3, 4, done, 10), told("a", release, 5, 6, done), told("b", try, 7, 8, done, 11),
	},
	"held though the last hold was released": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, done), told("b", try, 5, 6, refused),
	},
	"held though all holds were released": {
		told("a", acquire, 1, 2, done, 10), told("a", acquire, 3, 4, done, 10), told("a", release, 5, 6, done), told("a", release, 7, 8, done),
		told("b", try, 9, 10, refused),
	},
	"refused by a grant that nobody can have left behind": {by("ghost", told("a", try, 1, 2, refused))},
	"refused by a grant that was left behind later": {
		by("ghost", told("c", try, 1, 2, refused)), told("a", acquire, 3, 4, done, 10), by("a", told("b", acquire, 5, 6, refused)),
	},
	"refused by a grant that was told of, and given back": {
		func() history.Op { op := told("a", acquire, 1, 2, done, 10); op.Acquisition = "a:1"; return op }(),
		by("a:1", told("b", acquire, 3, 6, refused)), told("a", release, 7, 8, done), by("a:1", told("c", try, 9, 10, refused)),
	},
	"refused while free":          {told("a", try, 1, 2, refused)},
	"a waiter refused while free": {told("a", acquire, 1, 100, refused)},
	"refused its own lock":        {told("a", acquire, 1, 2, done, 10), told("a", try, 3, 4, refused)},
	"released by another":         {told("a", acquire, 1, 2, done, 10), told("b", release, 3, 4, done)},
	"released twice": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, done), told("a", release, 5, 6, done),
	},
	"a fence that went back": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, done), told("b", try, 5, 6, done, 9),
	},
	"a fence that stood still": {
		told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, done), told("b", try, 5, 6, done, 10),
	},
	"no fence":                             {told("a", acquire, 1, 2, done)},
	"entered again under another fence":    {told("a", acquire, 1, 2, done, 10), told("a", acquire, 3, 4, done, 11)},
	"lost, though nothing expires":         {told("a", acquire, 1, 2, done, 10), told("a", release, 3, 4, lost)},
	"not entered again, as if it was lost": {told("a", acquire, 1, 2, done, 10), told("a", acquire, 3, 4, lost)},
	"a grant nobody was told of is of no use to others": {
		told("a", acquire, 1, never, unknown), told("b", try, 5, 6, done, 10), told("c", try, 7, 8, done, 11),
	},
	"an unknown call happened before it was made": {
		told("b", try, 1, 2, refused), told("a", acquire, 3, never, unknown),
	},
	"an unknown release frees the lock of another": {
		told("a", acquire, 1, 2, done, 10), told("b", release, 3, never, unknown), told("c", try, 5, 6, done, 11),
	},
	"a bound fence is bound": {
		told("a", acquire, 1, never, unknown), told("a", acquire, 5, 6, done, 10), told("a", acquire, 7, 8, done, 11),
	},
	"below the fence that bound an unknown grant": {
		told("a", acquire, 1, never, unknown), told("a", acquire, 5, 6, done, 10), told("a", release, 7, 8, done), told("a", release, 9, 10, done),
		told("b", try, 11, 12, done, 9),
	},
	"closing frees only one's own": {
		told("a", acquire, 1, 2, done, 10), told("b", free, 3, 4, done), told("b", try, 5, 6, done, 11),
	},
}

func TestPossibleHistoriesAreAccepted(t *testing.T) {
	for name, ops := range possible {
		require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()), name)
	}
}

func TestImpossibleHistoriesAreRejected(t *testing.T) {
	for name, ops := range impossible {
		require.Error(t, check.Linearizable(ops, check.ReentrantMutex()), name)
	}
}

// A lock that is not reentrant refuses its holder, and needs no fences.
func TestPlainMutex(t *testing.T) {
	m := check.PlainMutex()
	require.NoError(t, check.Linearizable([]history.Op{
		told("a", acquire, 1, 2, done), told("a", try, 3, 4, refused), told("a", release, 5, 6, done), told("b", try, 7, 8, done),
	}, m))
	require.Error(t, check.Linearizable([]history.Op{told("a", acquire, 1, 2, done), told("a", try, 3, 4, done)}, m))
	require.Error(t, check.Linearizable([]history.Op{told("a", acquire, 1, 2, done), told("b", try, 3, 4, done)}, m))
}

// simulated returns answers that n clients of a correct lock could have got. Each call takes effect
// at an instant of its own, and its span extends to both sides.
func simulated(r *rand.Rand, clients, n int) []history.Op {
	var ops []history.Op
	holder, count, fence := "", 0, int64(0)
	busyUntil := make([]int64, clients)
	for at := int64(1); len(ops) < n; at += 10 {
		c := r.IntN(clients)
		owner := fmt.Sprint(c)
		op := history.Op{Client: c, Name: "n", Owner: owner, Kind: try, Outcome: done, Call: max(busyUntil[c], at-r.Int64N(50)), Return: at + r.Int64N(50)}
		if op.Call > at {
			continue
		}
		switch {
		case holder == owner && r.IntN(3) > 0:
			op.Kind = release
			if count--; count == 0 {
				holder = ""
			}
		case holder == owner:
			op.Fence = fence
			count++
		case holder != "":
			op.Outcome = refused
		default:
			fence += 1 + r.Int64N(5)
			holder, count, op.Fence = owner, 1, fence
		}
		busyUntil[c] = op.Return + 1
		ops = append(ops, op)
	}
	return ops
}

// The checker decides histories of the size that chaos makes. It finds one wrong answer among a
// thousand right ones.
func TestOneWrongAnswerAmongAThousandIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 5 {
		ops := simulated(r, 5, 1000)
		require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()))
		last := ops[len(ops)-1].Return + 100
		wrong := append(ops, told("x", acquire, last, last+1, done, ops[0].Fence))
		require.Error(t, check.Linearizable(wrong, check.ReentrantMutex()))
	}
}

// The checker decides thousands of calls. It is an error too if it does not decide.
func TestLongHistoriesAreDecided(t *testing.T) {
	ops := simulated(rand.New(rand.NewPCG(1, 1)), 6, 5000)
	require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()))
}

// A waiter came early, and got the lock as the last one. Meanwhile nobody knows what became of many calls. The fences
// say that it was the last one.
func TestAnEarlyWaiterWithALateGrantIsDecided(t *testing.T) {
	ops := []history.Op{told("ghost", acquire, 1, never, unknown), told("early", acquire, 2, 9000, done, 1000)}
	for i := range int64(20) {
		ops = append(ops,
			told(fmt.Sprint("unknown ", i), acquire, 10+20*i, never, unknown),
			told(fmt.Sprint("refused ", i), try, 15+20*i, 18+20*i, refused))
	}
	ops = append(ops, told("last but one", acquire, 500, 8100, done, 10), told("last but one", release, 8101, 8102, done), told("early", release, 9001, 9002, done))
	require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()))
}
