package check_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// The goal of this file: the check includes the order. It finds each history in which a request
// gets ahead of a waiter, and accepts histories that only look like that.

// granted is an acquire or a try that got the lock.
func granted(owner string, k history.Kind, from, to, fence int64) history.Op {
	op := answered(owner, k, from, to, done, fence)
	op.Acquisition = fmt.Sprint(owner, ":", fence)
	return op
}

// gaveUp sets how long the operation waited at least.
func gaveUp(at int64, op history.Op) history.Op {
	op.GaveUp = at
	return op
}

func freed(owner string, from, to int64) history.Op { return answered(owner, release, from, to, done) }

// held is a lock that a has, and that b waits for.
func held(more ...history.Op) []history.Op {
	return append([]history.Op{granted("a", acquire, 1, 2, 10)}, more...)
}

var inOrder = histories{
	"one after the other": {
		granted("a", acquire, 1, 2, 10), freed("a", 3, 4), granted("b", try, 5, 6, 11), freed("b", 7, 8),
	},
	"as they came": held(
		queued(4, granted("b", acquire, 3, 20, 11)), queued(6, granted("c", acquire, 5, 30, 12)),
		freed("a", 10, 11), freed("b", 21, 22), freed("c", 31, 32)),
	"those who came side by side, in the one order": held(
		queued(9, granted("b", acquire, 3, 20, 11)), queued(8, granted("c", acquire, 4, 30, 12)), freed("a", 10, 11), freed("b", 21, 22)),
	"those who came side by side, in the other order": held(
		queued(9, granted("b", acquire, 3, 30, 12)), queued(8, granted("c", acquire, 4, 20, 11)), freed("a", 10, 11), freed("c", 21, 22)),
	"a place that nobody reported, and its turn": held(
		granted("b", acquire, 3, 20, 11), queued(8, granted("c", acquire, 6, 30, 12)), freed("a", 10, 11), freed("b", 21, 22)),
	"one that gave up is passed over": held(
		queued(4, gaveUp(8, answered("b", acquire, 3, 9, refused))), queued(6, granted("c", acquire, 5, 20, 11)), freed("a", 7, 10)),
	"refused, granted as it left, and a try refused because of that": held(
		queued(4, gaveUp(8, answered("b", acquire, 3, 9, refused))), freed("a", 7, 8), by("ghost", answered("c", try, 10, 11, refused)), granted("c", try, 12, 13, 11)),
	"refused before it was notified of its place": held(
		answered("b", acquire, 3, 6, refused), queued(8, granted("c", acquire, 7, 20, 11)), freed("a", 10, 11)),
	"granted without hearing of it, and a try refused because of that": held(
		queued(4, gaveUp(20, answered("b", acquire, 3, 21, refused))), freed("a", 7, 8), by("b:1", answered("c", try, 10, 11, refused))),
	"given up on in silence, when the lock was free again": held(freed("a", 4, 5), gaveUp(8, answered("b", acquire, 3, 9, refused))),
	"a try while others wait": held(
		queued(4, granted("b", acquire, 3, 20, 11)), by("b:11", answered("c", try, 12, 13, refused)), freed("a", 10, 11), freed("b", 21, 22)),
	"entered again while others wait": held(
		queued(4, granted("b", acquire, 3, 20, 11)), granted("a", try, 5, 6, 10), freed("a", 7, 8), freed("a", 9, 10)),
	"nobody knows what became of one that waited": held(
		queued(4, answered("b", acquire, 3, never, unknown)), queued(6, granted("c", acquire, 5, 20, 11)), freed("a", 7, 10)),
	"nobody knows what became of one, which had it, and had it again": held(
		answered("b", acquire, 3, never, unknown), freed("a", 7, 8),
		queued(10, granted("c", acquire, 9, 15, 11)), freed("c", 16, 17), by("ghost", answered("d", try, 18, 19, refused))),
	"could not be asked any more, and was granted": held(
		queued(4, answered("b", acquire, 3, 9, nothing)), freed("a", 7, 10), by("ghost", answered("c", try, 11, 12, refused)), granted("c", acquire, 13, 14, 11)),
	"nobody knows whether it came, and those behind it": {
		answered("a", try, 1, never, unknown), queued(4, granted("b", acquire, 3, 20, 11)), freed("b", 21, 22),
	},
	"lost its place, and was passed over": held(
		queued(4, granted("b", acquire, 3, 40, 12)), answered("b", free, 5, never, unknown), queued(7, granted("c", acquire, 6, 20, 11)),
		freed("a", 10, 11), freed("c", 21, 22)),
	"lost its place, and got it back": held(
		queued(4, granted("b", acquire, 3, 20, 11)), answered("b", free, 5, never, unknown), queued(7, granted("c", acquire, 6, 40, 12)),
		freed("a", 10, 11), freed("b", 21, 22)),
	"lost the lock": held(
		queued(4, granted("b", acquire, 3, 20, 11)), answered("a", free, 5, 30, done)),
	"the release nobody knows of": held(
		queued(4, granted("b", acquire, 3, 20, 11)), answered("a", release, 5, never, unknown)),
	"nobody knows of a re-entry, which happened": held(
		answered("a", acquire, 3, never, unknown), freed("a", 4, 5), freed("a", 6, 7), granted("b", try, 8, 9, 11)),
	"nobody knows of a re-entry, which did not happen": held(
		answered("a", acquire, 3, never, unknown), freed("a", 4, 5), granted("b", try, 8, 9, 11)),
	"nobody knows of a try, which had it": held(
		answered("b", try, 3, never, unknown), freed("a", 4, 5), by("ghost", answered("c", try, 8, 9, refused)), granted("d", try, 10, 11, 11)),
	"what changed nothing while it was held": held(answered("a", acquire, 3, 4, nothing), freed("a", 5, 6), granted("b", try, 7, 8, 11)),
}

var outOfOrder = histories{
	"the second before the first": held(
		queued(4, granted("b", acquire, 3, 30, 12)), queued(6, granted("c", acquire, 5, 20, 11)),
		freed("a", 10, 11), freed("c", 21, 22)),
	"the last of three before the second": held(
		queued(4, granted("b", acquire, 3, 20, 11)), queued(6, granted("c", acquire, 5, 40, 13)), queued(8, granted("d", acquire, 7, 30, 12)),
		freed("a", 10, 11), freed("b", 21, 22), freed("d", 31, 32)),
	"a try that jumps": held(
		queued(4, granted("b", acquire, 3, 30, 12)), freed("a", 5, 6), granted("c", try, 7, 8, 11), freed("c", 9, 10)),
	"one that comes late jumps": held(
		queued(4, granted("b", acquire, 3, 30, 12)), freed("a", 5, 6), granted("c", acquire, 7, 8, 11), freed("c", 9, 10)),
	"passed over, and gave up after that": held(
		queued(4, gaveUp(40, answered("b", acquire, 3, 41, refused))), queued(6, granted("c", acquire, 5, 20, 11)), freed("a", 10, 11), freed("c", 21, 22)),
	"two at one time": held(queued(4, granted("b", acquire, 3, 5, 11)), freed("a", 6, 7)),
	"the second, while the first has it": held(
		queued(4, granted("b", acquire, 3, 20, 11)), queued(6, granted("c", acquire, 5, 21, 12)), freed("a", 10, 11), freed("b", 30, 31), freed("c", 30, 31)),
	"a fence that went back":          held(queued(4, granted("b", acquire, 3, 20, 9)), freed("a", 10, 11)),
	"a fence that stood still":        held(queued(4, granted("b", acquire, 3, 20, 10)), freed("a", 10, 11)),
	"lost its place without a reason": held(again(8, queued(4, granted("b", acquire, 3, 20, 11))), freed("a", 10, 11)),
	"had to wait though it was free":  {queued(2, granted("a", acquire, 1, 3, 10))},
	"had to wait though it was free again": held(
		freed("a", 3, 4), queued(6, gaveUp(8, answered("b", acquire, 5, 9, refused)))),
	"refused though it was free":       held(freed("a", 3, 4), answered("b", acquire, 5, 9, refused)),
	"a try refused though it was free": held(freed("a", 3, 4), answered("b", try, 5, 9, refused)),
	"a try refused by one that had given it back": held(
		queued(4, gaveUp(8, answered("b", acquire, 3, 9, refused))), freed("a", 7, 10), by("a:10", answered("c", try, 11, 12, refused))),
	"a try refused by one that nobody can have left behind": held(by("ghost", answered("c", try, 3, 4, refused))),
	"passed over before it lost its place": held(
		queued(4, granted("b", acquire, 3, 40, 12)), queued(7, granted("c", acquire, 6, 20, 11)),
		freed("a", 10, 11), freed("c", 21, 22), answered("b", free, 30, never, unknown)),
	"nobody knows what became of one, which had it thrice": held(
		answered("b", acquire, 3, never, unknown), freed("a", 7, 8),
		queued(10, granted("c", acquire, 9, 15, 11)), freed("c", 16, 17),
		queued(19, granted("d", acquire, 18, 20, 12)), freed("d", 21, 22), by("ghost", answered("c", try, 23, 24, refused))),
	"nobody knows what became of one that waited, which had it twice more": held(
		queued(4, answered("b", acquire, 3, never, unknown)), freed("a", 7, 8),
		queued(10, granted("c", acquire, 9, 15, 11)), freed("c", 16, 17), by("ghost", answered("d", try, 18, 19, refused)),
		granted("d", try, 20, 21, 12), freed("d", 22, 23), by("ghost", answered("e", try, 24, 25, refused))),
	"nobody knows of a try, which had it twice": held(
		answered("b", try, 3, never, unknown), freed("a", 4, 5), by("ghost", answered("c", try, 8, 9, refused)),
		granted("d", try, 10, 11, 11), freed("d", 12, 13), by("ghost", answered("e", try, 14, 15, refused))),
	"passed over, before nobody knew what became of it": held(
		queued(4, gaveUp(40, answered("b", acquire, 3, never, unknown))), queued(6, granted("c", acquire, 5, 20, 11)), freed("a", 10, 11)),
	"released more often than a re-entry that nobody knows of allows": held(
		answered("a", acquire, 3, never, unknown), freed("a", 4, 5), freed("a", 6, 7), freed("a", 8, 9), freed("a", 10, 11)),
	"refused its own lock":              held(answered("a", acquire, 3, 4, refused)),
	"entered again under another fence": held(granted("a", acquire, 3, 4, 11)),
	"released by one that only waits":   held(queued(4, answered("b", acquire, 3, never, unknown)), freed("b", 5, 6)),
	"lost, though nothing expires":      held(answered("a", release, 3, 4, lost)),
}

func TestHistoriesInOrderAreAccepted(t *testing.T) {
	for name, ops := range inOrder {
		require.NoError(t, check.Linearizable(ops, check.FairMutex()), name)
	}
}

func TestHistoriesOutOfOrderAreRejected(t *testing.T) {
	for name, ops := range outOfOrder {
		require.Error(t, check.Linearizable(ops, check.FairMutex()), name)
	}
}

// If nobody waits, it is a mutex: the same answers are possible, and no others.
func TestAFairMutexIsAMutex(t *testing.T) {
	for name, ops := range possible {
		require.NoError(t, check.Linearizable(named(ops), check.FairMutex()), name)
	}
	for name, ops := range impossible {
		require.Error(t, check.Linearizable(named(ops), check.FairMutex()), name)
	}
}

// named gives each grant an acquisition of its own.
func named(ops []history.Op) []history.Op {
	ops = slices.Clone(ops)
	for i, op := range ops {
		if op.Acquisition == "" && op.Outcome == done && op.Fence != 0 {
			ops[i].Acquisition = fmt.Sprint(op.Owner, ":", op.Fence)
		}
	}
	return ops
}

// fairly returns answers that n clients of a correct fair mutex could have got. The clients come,
// and are notified of their place some time after they have it. They give up or get the lock, and
// leave.
func fairly(r *rand.Rand, clients, n int) (ops []history.Op) {
	type client struct {
		op   history.Op // while it waits or holds
		quit int64      // time after which it gives up
	}
	all := make([]client, clients)
	var queue []int
	holder, fence := -1, int64(0)
	for at := int64(100); len(ops) < n; at += 10 {
		switch i := r.IntN(clients); {
		case i == holder:
			ops = append(ops, freed(all[i].op.Owner, at-r.Int64N(5), at+r.Int64N(5)))
			all[i], holder = client{}, -1
		case all[i].op.Call == 0:
			op := answered(fmt.Sprint(i, ".", at), acquire, at-r.Int64N(5), 0, done)
			op.Client = i
			if holder >= 0 || len(queue) > 0 {
				op.Queued = at + r.Int64N(5)
			}
			all[i], queue = client{op, at + 10*r.Int64N(40)}, append(queue, i)
		case all[i].quit < at:
			op := all[i].op
			op.Outcome, op.GaveUp, op.Return = refused, at-1, at+r.Int64N(5)
			ops = append(ops, op)
			all[i], queue = client{}, slices.DeleteFunc(queue, func(j int) bool { return i == j })
		}
		if holder < 0 && len(queue) > 0 {
			holder, queue = queue[0], queue[1:]
			fence++
			op := &all[holder].op
			op.Fence, op.Return, op.Acquisition = fence, at+5+r.Int64N(4), fmt.Sprint(fence)
			ops = append(ops, *op)
		}
	}
	return ops
}

// The check decides histories of the size that chaos makes. It finds one inversion in a thousand
// calls, also by the fences.
func TestOneInversionAmongAThousandIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	nobody := func(history.Op) bool { return false }
	for range 5 {
		ops := fairly(r, 6, 1000)
		require.NoError(t, check.Linearizable(ops, check.FairMutex()))
		require.NoError(t, check.Order(ops, nobody))
		first, second := inverted(ops)
		a, b := &ops[first], &ops[second] // the second to come got the lock first
		a.Call, b.Call, a.Queued, b.Queued = b.Call, a.Call, b.Queued, a.Queued
		require.Error(t, check.Linearizable(ops, check.FairMutex()))
		require.Error(t, check.Order(ops, nobody))
	}
}

// inverted finds two consecutive grants to clients that came one after the other and waited.
func inverted(ops []history.Op) (first, second int) {
	first = len(ops) / 2
	for ; ; first++ {
		if ops[first].Outcome != done || ops[first].Kind != acquire || ops[first].Queued == 0 {
			continue
		}
		second = first + 1 + slices.IndexFunc(ops[first+1:], func(op history.Op) bool { return op.Kind == acquire && op.Outcome == done })
		if ops[first].Queued < ops[second].Call && ops[second].Queued < ops[first].Return {
			return first, second
		}
	}
}

// Order finds requests that get ahead of a waiter which nothing kept from waiting, whether leases
// end or not.
func TestOrder(t *testing.T) {
	nobody := func(history.Op) bool { return false }
	for name, ops := range inOrder {
		if !strings.HasPrefix(name, "lost its place") {
			require.NoError(t, check.Order(ops, nobody), name)
		}
	}
	for _, name := range []string{
		"the second before the first", "the last of three before the second", "a try that jumps", "one that comes late jumps",
		"passed over, and gave up after that", "lost its place without a reason", "passed over before it lost its place",
	} {
		ops := outOfOrder[name]
		require.Error(t, check.Order(ops, nobody), name)
		require.NoError(t, check.Order(ops, func(op history.Op) bool { return op.Owner == "b" || op.Owner == "c" }), name)
	}
}

// A released lock goes to a waiter, even to one that gives up later. A waiter that Redis may have
// taken for crashed, or that may have had the lock in between, is no error.
func TestPrompt(t *testing.T) {
	const within = 5 * time.Nanosecond
	nobody := func(history.Op) bool { return false }
	of := func(owner string) func(history.Op) bool {
		return func(op history.Op) bool { return op.Owner == owner }
	}
	release := freed("a", 10, 11)
	release.Acquisition = "a:10"
	silent := release
	silent.Outcome, silent.Return = unknown, never
	slow := queued(4, granted("b", acquire, 3, 20, 11))
	left := queued(4, gaveUp(18, answered("b", acquire, 3, 19, refused)))
	prompt := histories{
		"at once":                         held(release, queued(4, granted("b", acquire, 3, 16, 11))),
		"to another":                      held(release, queued(4, granted("c", acquire, 3, 15, 11)), left),
		"came later":                      held(release, queued(12, granted("b", acquire, 3, 20, 11))),
		"gave up soon after":              held(release, queued(4, gaveUp(15, answered("b", acquire, 3, 19, refused)))),
		"nobody knows when it was free":   held(silent, slow),
		"nobody knows how long it waited": held(release, queued(4, answered("b", acquire, 3, never, unknown))),
		"a re-entry was given back":       {granted("a", acquire, 1, 2, 10), granted("a", acquire, 3, 4, 10), slow},
	}
	for name, ops := range prompt {
		require.NoError(t, check.Prompt(ops, within, nobody), name)
	}
	tardy := histories{
		"late":            held(release, slow),
		"never":           held(release, left),
		"late to another": held(release, queued(4, granted("c", acquire, 3, 20, 11)), left),
	}
	for name, ops := range tardy {
		require.Error(t, check.Prompt(ops, within, nobody), name)
		require.NoError(t, check.Prompt(ops, within, of("a")), name)
		require.NoError(t, check.Prompt(ops, within, of("b")), name)
	}
	for _, from := range []int64{5, 12} { // its place may still be there, or it asks
		between := held(release, slow, answered("c", acquire, from, from+1, refused))
		require.Error(t, check.Prompt(between, within, nobody))
		require.NoError(t, check.Prompt(between, within, of("c")))
	}
}

// A waiter asked early, and got a place late, after another one. Meanwhile nobody knows what became
// of many calls. The fences say in which order both came.
func TestAnEarlyWaiterWithALatePlaceIsDecided(t *testing.T) {
	waits := func(queued int64, op history.Op) history.Op {
		op.Queued = queued
		return op
	}
	ops := []history.Op{answered("ghost", acquire, 1, never, unknown), waits(7000, answered("early", acquire, 2, 9000, done, 1000)), waits(8, answered("first", acquire, 5, 8100, done, 10))}
	for i := range int64(20) {
		ops = append(ops,
			answered(fmt.Sprint("unknown ", i), acquire, 10+20*i, never, unknown),
			answered(fmt.Sprint("refused ", i), try, 15+20*i, 18+20*i, refused))
	}
	ops = append(ops, answered("first", release, 8101, 8102, done), answered("early", release, 9001, 9002, done))
	for i := range ops {
		ops[i].Acquisition = ops[i].Owner
	}
	require.NoError(t, check.Linearizable(ops, check.FairMutex()))
}

// Nobody knows what became of many calls, and a waiter lost its place. Only a search that tries the
// rest in few orders finds that no order explains it.
func TestALossAmongManyUnknownCallsIsDecided(t *testing.T) {
	ops := held()
	for i := range int64(40) {
		ops = append(ops,
			answered(fmt.Sprint("unknown ", i), acquire, 10+20*i, never, unknown),
			by(fmt.Sprint("unseen ", i), answered(fmt.Sprint("refused ", i), try, 5+20*i, 1000+20*i, refused)))
	}
	waiter := queued(70, granted("b", acquire, 60, 3000, 11))
	ops = append(ops, waiter, freed("a", 900, 2000))
	require.NoError(t, check.Linearizable(ops, check.FairMutex()))
	ops[len(ops)-2] = again(500, waiter)
	require.ErrorContains(t, check.Linearizable(ops, check.FairMutex()), "(illegal)")
}
