package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// The goal of this file: the checker accepts the answers that a semaphore of three units may give,
// and rejects others.

// units is a call of one client for n units. If it gets a permit, its acquisition is p<id>.
func units(id, n int, k history.Kind, from, to int64, o history.Outcome) history.Op {
	return history.Op{
		Client: id, Name: "n", Owner: fmt.Sprint(id), Acquisition: fmt.Sprintf("p%d", id),
		Kind: k, Units: n, Call: from, Return: to, Outcome: o,
	}
}

// saying sets what a refusal says.
func saying(inUse, ahead int, op history.Op) history.Op {
	op.InUse, op.Ahead = inUse, ahead
	return op
}

// queued sets the time by which a waiter was notified of its place.
func queued(by int64, op history.Op) history.Op {
	op.Queued = by
	return op
}

func again(by int64, op history.Op) history.Op {
	op.Again = by
	return op
}

const (
	resize  = history.Resize
	tooMany = history.TooMany
)

var possiblePermits = histories{
	"nothing at all": nil,
	"as many as there are": {
		units(1, 2, acquire, 1, 2, done), units(2, 1, try, 3, 4, done), saying(3, 0, units(3, 1, try, 5, 6, refused)),
		units(1, 2, release, 7, 8, done), units(4, 2, try, 9, 10, done),
	},
	"a waiter gets them when they are released": {
		units(1, 3, acquire, 1, 2, done), queued(5, units(2, 2, acquire, 3, 9, done)), units(1, 3, release, 6, 7, done),
	},
	"a waiter that was notified too late of its place": {
		units(1, 3, acquire, 1, 2, done), units(2, 2, acquire, 3, 9, done), units(1, 3, release, 6, 7, done),
	},
	"refused though enough is free, for others were before it": {
		units(1, 2, acquire, 1, 2, done), queued(5, units(2, 2, acquire, 3, 20, done)),
		saying(2, 1, units(3, 1, try, 6, 7, refused)), units(1, 2, release, 8, 9, done),
	},
	"refused though enough is free, for one who gave up then was before it": {
		units(1, 2, acquire, 1, 2, done), saying(2, 0, units(2, 2, acquire, 3, 5, refused)),
		saying(2, 1, units(3, 1, try, 6, 7, refused)), units(3, 1, try, 8, 9, done),
	},
	"refused for a place of one's own, given up just before": {
		units(1, 2, acquire, 1, 2, done), saying(2, 0, units(2, 2, acquire, 3, 5, refused)), saying(2, 1, units(2, 1, try, 6, 7, refused)),
	},
	"units of one who gave up, for a moment": {
		units(1, 3, acquire, 1, 2, done), saying(3, 0, units(2, 2, acquire, 3, 5, refused)), units(1, 3, release, 6, 7, done),
		saying(2, 0, units(3, 2, try, 8, 9, refused)), units(3, 3, try, 10, 11, done),
	},
	"units that nobody was notified of": {
		units(1, 2, acquire, 1, never, unknown), saying(2, 0, units(2, 2, try, 5, 6, refused)), units(2, 2, try, 7, 8, done),
	},
	"units that nobody was notified of, and never were": {units(1, 2, acquire, 1, never, unknown), units(2, 3, try, 5, 6, done)},
	"a release whose answer was lost": {
		units(1, 3, acquire, 1, 2, done), units(1, 3, release, 3, never, unknown),
		saying(3, 0, units(2, 1, try, 5, 6, refused)), units(2, 3, try, 7, 8, done),
	},
	"an expiry that somebody was notified of": {
		units(1, 3, acquire, 1, 2, done), units(1, 3, free, 2, 9, done), units(2, 3, try, 5, 6, done),
	},
	"more than there are": {units(1, 4, acquire, 1, 2, tooMany)},
	"raised, for a waiter": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 9, done)), units(5, 5, resize, 6, 7, done),
	},
	"lowered, and nothing is taken away": {
		units(1, 3, acquire, 1, 2, done), units(5, 1, resize, 3, 4, done), saying(3, 0, units(2, 1, try, 5, 6, refused)),
		units(2, 2, try, 7, 8, tooMany), units(1, 3, release, 9, 10, done), units(2, 1, try, 11, 12, done),
	},
	"a waiter that is sent away": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 9, tooMany)), units(5, 1, resize, 6, 7, done),
	},
	"resized again after another, for its answer was lost": {
		units(5, 5, resize, 1, 8, done), units(1, 5, try, 2, 3, done), units(6, 2, resize, 4, 5, done), units(2, 3, try, 6, 7, tooMany),
		units(1, 5, release, 9, 10, done), units(2, 5, try, 11, 12, done),
	},
	"resized three times after others, for its answer was lost each time": {
		units(5, 5, resize, 1, 20, done), units(1, 5, try, 2, 3, done), units(1, 5, release, 4, 5, done),
		units(6, 2, resize, 6, 7, done), units(1, 5, try, 8, 9, done), units(1, 5, release, 10, 11, done),
		units(6, 2, resize, 12, 13, done), units(2, 3, try, 14, 15, tooMany), func() history.Op {
			op := units(2, 5, try, 16, 17, done)
			op.Acquisition = "another"
			return op
		}(),
	},
	"resized twice after others": {
		units(5, 2, resize, 1, 60, done), units(8, 3, try, 3, 4, tooMany),
		units(6, 5, resize, 5, 60, done), units(9, 5, try, 6, 7, done), units(9, 5, release, 8, 9, done),
		units(7, 3, resize, 10, 11, done), units(1, 1, try, 12, 13, done),
		units(3, 4, try, 16, 17, done), units(3, 4, release, 18, 19, done), units(1, 1, release, 20, 21, done),
	},
	"granted before it gave up the place for which the limit was too low": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 3, acquire, 3, 8, tooMany)), units(5, 1, resize, 5, 6, done),
		units(5, 3, resize, 9, 10, done), units(1, 3, release, 11, 12, done), saying(3, 0, units(3, 1, try, 13, 14, refused)),
	},
	"granted before it gave up a place that it was not notified of": {
		units(1, 3, acquire, 1, 2, done), units(2, 3, acquire, 3, 8, tooMany), units(5, 1, resize, 5, 6, done),
		units(5, 3, resize, 9, 10, done), units(1, 3, release, 11, 12, done), saying(3, 0, units(3, 1, try, 13, 14, refused)),
	},
	"raised or not": {units(5, 5, resize, 1, never, unknown), units(1, 4, try, 3, 4, tooMany), units(1, 4, try, 5, 6, done)},
	"what never reached the server": {
		units(1, 3, acquire, 1, 2, done), units(2, 1, acquire, 3, 4, nothing), units(5, 9, resize, 5, 6, nothing),
		units(1, 3, release, 7, 8, done),
	},
	"refused behind one that the server sent away, but had queued": {
		units(1, 1, acquire, 1, 2, done), units(2, 3, acquire, 3, 8, nothing), saying(1, 1, units(3, 1, try, 4, 7, refused)),
	},
	"queued though it would fit, behind another": {
		units(1, 2, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 20, done)), queued(6, units(3, 1, acquire, 5, 20, done)),
		units(1, 2, release, 7, 8, done),
	},
	"queued though it would fit, behind one who gave up": {
		units(1, 2, acquire, 1, 2, done), saying(2, 0, units(2, 2, acquire, 3, 5, refused)), queued(7, units(3, 1, acquire, 6, 9, done)),
	},
	"a release that nobody was notified of, of what had expired": {
		units(1, 3, acquire, 1, 2, done), units(1, 3, free, 2, 5, done), units(1, 3, release, 6, never, unknown), units(2, 3, try, 7, 8, done),
	},
	"who asked before another was notified of its place may be first": {
		units(1, 3, acquire, 1, 2, done), queued(6, units(2, 2, acquire, 3, 40, done)), units(3, 2, acquire, 5, 20, done),
		units(1, 3, release, 7, 8, done), units(3, 2, release, 21, 22, done),
	},
}

var impossiblePermits = histories{
	"more than the limit": {units(1, 2, acquire, 1, 2, done), units(2, 2, try, 3, 4, done)},
	"more than the limit, at the same time": {
		units(1, 2, acquire, 1, 5, done), units(2, 2, acquire, 1, 5, done), units(1, 2, release, 6, 7, done), units(2, 2, release, 6, 7, done),
	},
	"the same permit for two": {
		units(1, 1, acquire, 1, 2, done), func() history.Op { op := units(2, 1, try, 3, 4, done); op.Acquisition = "p1"; return op }(),
	},
	"released twice": {
		units(1, 1, acquire, 1, 2, done), units(2, 2, acquire, 1, 2, done), units(1, 1, release, 3, 4, done), units(1, 1, release, 5, 6, done),
	},
	"units minted by a second release": {
		units(1, 1, acquire, 1, 2, done), units(2, 2, acquire, 1, 2, done), units(1, 1, release, 3, 4, done),
		units(3, 2, try, 5, 6, done),
	},
	"released by nobody":              {units(1, 1, release, 1, 2, done)},
	"expired and released":            {units(1, 3, acquire, 1, 2, done), units(1, 3, free, 2, 5, done), units(1, 3, release, 6, 7, done)},
	"expired twice":                   {units(1, 3, acquire, 1, 2, done), units(1, 3, free, 2, 5, done), units(1, 3, free, 6, 7, done)},
	"lost, though nothing expires":    {units(1, 1, acquire, 1, 2, done), units(1, 1, release, 3, 4, lost)},
	"refused while all is free":       {units(1, 1, try, 1, 2, refused)},
	"refused while enough is free":    {units(1, 1, acquire, 1, 2, done), saying(1, 0, units(2, 2, try, 3, 4, refused))},
	"a waiter refused while all free": {units(1, 1, acquire, 1, 100, refused)},
	"refused for others where there are none": {
		units(1, 1, acquire, 1, 2, done), saying(1, 1, units(2, 2, try, 3, 4, refused)),
	},
	"refused by fewer than are in use": {units(1, 3, acquire, 1, 2, done), saying(2, 0, units(2, 2, try, 3, 4, refused))},
	"units that leaked": {
		units(1, 2, acquire, 1, 2, done), units(1, 2, release, 3, 4, done), saying(2, 0, units(2, 2, try, 5, 6, refused)),
	},
	"units that nobody can have left": {
		units(1, 1, acquire, 1, never, unknown), saying(2, 0, units(2, 2, try, 3, 4, refused)),
	},
	"units left by one who came later": {
		saying(3, 0, units(2, 3, try, 1, 2, refused)), units(1, 3, acquire, 3, never, unknown),
	},
	"units of one who had gone": {
		units(1, 3, acquire, 1, 2, done), saying(3, 0, units(2, 2, acquire, 3, 5, refused)), units(1, 3, release, 6, 7, done),
		units(3, 3, try, 8, 9, done), units(3, 3, release, 10, 11, done), saying(2, 0, units(3, 2, try, 12, 13, refused)),
	},
	"units of one who had gone when another was refused": {
		units(1, 2, acquire, 1, 2, done), saying(2, 0, units(2, 2, acquire, 3, 5, refused)), saying(2, 0, units(3, 3, try, 6, 7, refused)),
		units(1, 2, release, 8, 9, done), saying(2, 0, units(3, 2, try, 10, 11, refused)),
	},
	"a try that overtakes": {
		units(1, 2, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 40, done)), units(3, 1, try, 5, 6, done),
		units(1, 2, release, 7, 8, done), units(3, 1, release, 7, 8, done),
	},
	"a try that overtakes one whom the lowered limit suits": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 40, done)), units(5, 2, resize, 5, 6, done),
		units(1, 3, release, 7, 8, done), units(3, 1, try, 9, 10, done), units(3, 1, release, 11, 12, done),
	},
	"a waiter that overtakes": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 2, acquire, 3, 40, done)), queued(8, units(3, 2, acquire, 6, 20, done)),
		units(1, 3, release, 9, 10, done), units(3, 2, release, 21, 22, done),
	},
	"passed over because the limit was too low for it in between": {
		units(1, 3, acquire, 1, 2, done), queued(4, units(2, 3, acquire, 3, 40, done)), units(5, 2, resize, 5, 6, done),
		units(1, 3, release, 7, 8, done), units(5, 3, resize, 9, 10, done), units(3, 1, try, 11, 12, done), units(3, 1, release, 13, 14, done),
	},
	"a lost place": {
		units(1, 3, acquire, 1, 2, done), again(9, queued(4, units(2, 2, acquire, 3, 40, done))), units(1, 3, release, 10, 11, done),
	},
	"queued while all is free": {queued(5, units(1, 1, acquire, 1, 9, done))},
	"in use by one that never queues": {
		units(1, 3, acquire, 1, 2, done), units(2, 3, try, 6, 8, tooMany), units(5, 1, resize, 4, 5, done),
		units(5, 3, resize, 9, 10, done), units(1, 3, release, 11, 12, done), saying(3, 0, units(3, 1, try, 13, 14, refused)),
	},
	"sent away while there are enough": {units(1, 3, acquire, 1, 2, tooMany)},
	"sent away though it was raised":   {units(5, 5, resize, 1, 2, done), units(1, 4, try, 3, 4, tooMany)},
	"as if it was not lowered":         {units(5, 1, resize, 1, 2, done), units(1, 2, try, 3, 4, done)},
	"resized again after it returned": {
		units(5, 5, resize, 1, 2, done), units(6, 2, resize, 3, 4, done), units(1, 5, try, 5, 6, done),
	},
	"lowered by taking permits away": {
		units(1, 3, acquire, 1, 2, done), units(5, 1, resize, 3, 4, done), units(2, 1, try, 5, 6, done),
	},
	"as if it was raised": {units(5, 9, resize, 1, 2, nothing), units(1, 4, try, 3, 4, done)},
}

func TestPossiblePermitsAreAccepted(t *testing.T) {
	for name, ops := range possiblePermits {
		require.NoError(t, check.Linearizable(ops, check.Permits(3)), name)
	}
}

func TestImpossiblePermitsAreRejected(t *testing.T) {
	for name, ops := range impossiblePermits {
		require.Error(t, check.Linearizable(ops, check.Permits(3)), name)
	}
}

// permitted returns answers that n clients of a correct semaphore of five units could have got.
// Each has one permit at a time.
func permitted(r *rand.Rand, clients, n int) []history.Op {
	var ops []history.Op
	held, busyUntil := make([]history.Op, clients), make([]int64, clients)
	used := 0
	for at := int64(1); len(ops) < n; at += 10 {
		c := r.IntN(clients)
		op := units(c, 1+r.IntN(3), try, max(busyUntil[c], at-r.Int64N(50)), at+r.Int64N(50), done)
		op.Acquisition = fmt.Sprintf("%d:%d", c, at)
		switch {
		case op.Call > at:
			continue
		case held[c].Units > 0:
			op.Kind, op.Units, op.Acquisition = release, held[c].Units, held[c].Acquisition
			used -= op.Units
			held[c] = history.Op{}
		case op.Units > 5-used:
			op.Outcome, op.InUse = refused, used
		default:
			used += op.Units
			held[c] = op
		}
		busyUntil[c] = op.Return + 1
		ops = append(ops, op)
	}
	return ops
}

// The checker decides histories longer than those of chaos, and finds one wrong answer.
func TestOneWrongPermitAmongThousandsIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 5 {
		ops := permitted(r, 6, 2000)
		require.NoError(t, check.Linearizable(ops, check.Permits(5)))
		last := ops[len(ops)-1].Return + 100
		require.Error(t, check.Linearizable(append(ops, units(9, 1, release, last, last+1, done)), check.Permits(5)))
	}
}
