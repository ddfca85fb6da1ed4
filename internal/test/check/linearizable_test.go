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

// answered is a call from one instant to another, with its answer.
func answered(owner string, k history.Kind, from, to int64, o history.Outcome, fence ...int64) history.Op {
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
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, done),
		answered("b", try, 5, 6, done, 11), answered("b", release, 7, 8, done),
	},
	"a waiter gets it when it is released": {
		answered("a", acquire, 1, 2, done, 10), answered("b", acquire, 3, 9, done, 11), answered("a", release, 7, 8, done),
	},
	"again, by its owner, with the same fence": {
		answered("a", acquire, 1, 2, done, 10), answered("a", try, 3, 4, done, 10),
		answered("a", release, 5, 6, done), answered("b", try, 7, 8, refused), answered("a", release, 9, 10, done),
		answered("b", try, 11, 12, done, 30),
	},
	"refused while the release is under way": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 8, done), answered("b", try, 4, 5, refused),
	},
	"a grant that nobody was notified of, and its refusal of others": {
		answered("a", acquire, 1, never, unknown), answered("b", try, 5, 6, refused),
	},
	"a grant that nobody was notified of, released in the background": {
		answered("a", acquire, 1, never, unknown), answered("b", try, 5, 6, refused), answered("b", try, 7, 8, done, 10),
	},
	"a grant that nobody was notified of, and never was": {
		answered("a", acquire, 1, never, unknown), answered("b", try, 5, 6, done, 10),
	},
	"a grant that was reported only when it was re-entered": {
		answered("a", acquire, 1, never, unknown), answered("a", acquire, 5, 6, done, 10), answered("a", acquire, 7, 8, done, 10),
	},
	"a waiter that gave up, whose late grant refused another for a moment": {
		answered("a", acquire, 1, 2, done, 10), answered("b", acquire, 3, 6, refused), answered("a", release, 5, 7, done),
		by("ghost", answered("c", try, 8, 9, refused)), answered("c", try, 10, 11, done, 12),
	},
	"handed on to one that had just left the line of its process, and a refusal because of that": {
		answered("a", acquire, 1, 2, done, 10), answered("b", acquire, 3, 6, nothing), answered("a", release, 5, 7, done),
		by("ghost", answered("c", try, 8, 9, refused)), answered("c", try, 10, 11, done, 12),
	},
	"a release whose answer was lost": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, never, unknown), answered("b", try, 5, 6, done, 11),
	},
	"a release whose answer was lost, done much later": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, never, unknown), answered("b", try, 5, 6, refused), answered("b", try, 7, 8, done, 11),
	},
	"all holds at once, by closing": {
		answered("a", acquire, 1, 2, done, 10), answered("a", acquire, 3, 4, done, 10), answered("a", free, 5, 6, done), answered("b", try, 7, 8, done, 11),
	},
	"closing what is not held": {answered("a", free, 1, 2, done)},
	"what never reached the server": {
		answered("a", acquire, 1, 2, done, 10), answered("b", acquire, 3, 4, nothing), answered("a", release, 5, 6, done),
	},
}

var impossible = histories{
	"two holders": {answered("a", acquire, 1, 2, done, 10), answered("b", try, 3, 4, done, 11)},
	"two holders, granted at the same time": {
		answered("a", acquire, 1, 5, done, 10), answered("b", acquire, 1, 5, done, 11), answered("a", release, 6, 7, done), answered("b", release, 6, 7, done),
	},
	"free though one hold is left": {
		answered("a", acquire, 1, 2, done, 10), answered("a", acquire, 3, 4, done, 10), answered("a", release, 5, 6, done), answered("b", try, 7, 8, done, 11),
	},
	"held though the last hold was released": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, done), answered("b", try, 5, 6, refused),
	},
	"held though all holds were released": {
		answered("a", acquire, 1, 2, done, 10), answered("a", acquire, 3, 4, done, 10), answered("a", release, 5, 6, done), answered("a", release, 7, 8, done),
		answered("b", try, 9, 10, refused),
	},
	"refused by a grant that nobody can have left behind": {by("ghost", answered("a", try, 1, 2, refused))},
	"refused by a grant that was left behind later": {
		by("ghost", answered("c", try, 1, 2, refused)), answered("a", acquire, 3, 4, done, 10), by("a", answered("b", acquire, 5, 6, refused)),
	},
	"refused by a grant that was reported and released": {
		func() history.Op { op := answered("a", acquire, 1, 2, done, 10); op.Acquisition = "a:1"; return op }(),
		by("a:1", answered("b", acquire, 3, 6, refused)), answered("a", release, 7, 8, done), by("a:1", answered("c", try, 9, 10, refused)),
	},
	"refused while free":          {answered("a", try, 1, 2, refused)},
	"a waiter refused while free": {answered("a", acquire, 1, 100, refused)},
	"refused its own lock":        {answered("a", acquire, 1, 2, done, 10), answered("a", try, 3, 4, refused)},
	"released by another":         {answered("a", acquire, 1, 2, done, 10), answered("b", release, 3, 4, done)},
	"released twice": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, done), answered("a", release, 5, 6, done),
	},
	"a fence that went back": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, done), answered("b", try, 5, 6, done, 9),
	},
	"a fence that stood still": {
		answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, done), answered("b", try, 5, 6, done, 10),
	},
	"no fence":                             {answered("a", acquire, 1, 2, done)},
	"entered again under another fence":    {answered("a", acquire, 1, 2, done, 10), answered("a", acquire, 3, 4, done, 11)},
	"lost, though nothing expires":         {answered("a", acquire, 1, 2, done, 10), answered("a", release, 3, 4, lost)},
	"not entered again, as if it was lost": {answered("a", acquire, 1, 2, done, 10), answered("a", acquire, 3, 4, lost)},
	"a grant nobody was notified of is of no use to others": {
		answered("a", acquire, 1, never, unknown), answered("b", try, 5, 6, done, 10), answered("c", try, 7, 8, done, 11),
	},
	"an unknown call happened before it was made": {
		answered("b", try, 1, 2, refused), answered("a", acquire, 3, never, unknown),
	},
	"an unknown release frees the lock of another": {
		answered("a", acquire, 1, 2, done, 10), answered("b", release, 3, never, unknown), answered("c", try, 5, 6, done, 11),
	},
	"a bound fence is bound": {
		answered("a", acquire, 1, never, unknown), answered("a", acquire, 5, 6, done, 10), answered("a", acquire, 7, 8, done, 11),
	},
	"below the fence that bound an unknown grant": {
		answered("a", acquire, 1, never, unknown), answered("a", acquire, 5, 6, done, 10), answered("a", release, 7, 8, done), answered("a", release, 9, 10, done),
		answered("b", try, 11, 12, done, 9),
	},
	"closing frees only one's own": {
		answered("a", acquire, 1, 2, done, 10), answered("b", free, 3, 4, done), answered("b", try, 5, 6, done, 11),
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
		answered("a", acquire, 1, 2, done), answered("a", try, 3, 4, refused), answered("a", release, 5, 6, done), answered("b", try, 7, 8, done),
	}, m))
	require.Error(t, check.Linearizable([]history.Op{answered("a", acquire, 1, 2, done), answered("a", try, 3, 4, done)}, m))
	require.Error(t, check.Linearizable([]history.Op{answered("a", acquire, 1, 2, done), answered("b", try, 3, 4, done)}, m))
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
		wrong := append(ops, answered("x", acquire, last, last+1, done, ops[0].Fence))
		require.Error(t, check.Linearizable(wrong, check.ReentrantMutex()))
	}
}

// The checker decides thousands of calls. It is an error too if it does not decide.
func TestLongHistoriesAreDecided(t *testing.T) {
	ops := simulated(rand.New(rand.NewPCG(1, 1)), 6, 5000)
	require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()))
}

// A waiter came early, and got the lock as the last one. Meanwhile nobody knows what became of many
// calls. The fences say that it was the last one.
func TestAnEarlyWaiterWithALateGrantIsDecided(t *testing.T) {
	ops := []history.Op{answered("ghost", acquire, 1, never, unknown), answered("early", acquire, 2, 9000, done, 1000)}
	for i := range int64(20) {
		ops = append(ops,
			answered(fmt.Sprint("unknown ", i), acquire, 10+20*i, never, unknown),
			answered(fmt.Sprint("refused ", i), try, 15+20*i, 18+20*i, refused))
	}
	ops = append(ops, answered("last but one", acquire, 500, 8100, done, 10), answered("last but one", release, 8101, 8102, done), answered("early", release, 9001, 9002, done))
	require.NoError(t, check.Linearizable(ops, check.ReentrantMutex()))
}
