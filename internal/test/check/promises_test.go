package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

func TestCountsAreThoseOfTheHolder(t *testing.T) {
	count := func(holder string, counted, has int) history.Op {
		return history.Op{Kind: history.Count, Outcome: done, Acquisition: "a", Holder: holder, Units: counted, InUse: has}
	}
	require.NoError(t, check.Counts([]history.Op{count("a", 2, 2), count("a", 1, 1), count("b", 3, 1)}))
	require.Error(t, check.Counts([]history.Op{count("a", 2, 1)}), "a re-entry that was given up counts")
	require.Error(t, check.Counts([]history.Op{count("a", 1, 2)}), "a re-entry does not count")
}

func TestNobodyIsTakenOutOfAQueue(t *testing.T) {
	removed := answered("a", acquire, 1, 2, history.Removed)
	require.NoError(t, check.Removed([]history.Op{answered("a", acquire, 1, 2, refused)}, 0))
	require.NoError(t, check.Removed([]history.Op{removed}, 1))
	require.Error(t, check.Removed([]history.Op{removed}, 0))
	require.Error(t, check.Removed([]history.Op{removed, removed}, 1))
}

// client sets the client of an operation, and names its acquisition after its owner.
func client(n int, op history.Op) history.Op {
	op.Client, op.Acquisition = n, op.Owner
	return op
}

// Another client has to get the lock of a crashed one a lease after the crash, and no sooner.
func TestWhatTheCrashedHeldIsInherited(t *testing.T) {
	first := client(1, answered("a", acquire, 1, 2, done, 10))
	waits := func(until int64) history.Op {
		return queued(4, client(2, answered("b", acquire, 3, until, done, 11)))
	}
	gaveUp := queued(4, client(2, answered("b", acquire, 3, 300, refused)))
	gaveUp.GaveUp = 299
	another := client(3, answered("c", acquire, 90, 118, done, 11))
	dead := []check.Death{{Client: 1, At: 10, Lease: 100 * time.Nanosecond}} // until 110
	for name, c := range map[string]struct {
		ops    []history.Op
		deaths []check.Death
		fine   bool
	}{
		"in time":                  {[]history.Op{first, waits(119)}, dead, true},
		"too late":                 {[]history.Op{first, waits(200)}, dead, false},
		"never":                    {[]history.Op{first, gaveUp}, dead, false},
		"gave up before":           {[]history.Op{first, func() history.Op { op := gaveUp; op.GaveUp = 100; return op }()}, dead, true},
		"by another":               {[]history.Op{first, another, waits(200)}, dead, true},
		"nobody died":              {[]history.Op{first, waits(200)}, nil, true},
		"given back before":        {[]history.Op{first, client(1, answered("a", release, 5, 6, done)), waits(200)}, dead, true},
		"nobody was known to wait": {[]history.Op{first, queued(20, waits(200))}, dead, true},
		"the dead waited too": {
			[]history.Op{first, waits(200), queued(8, client(1, answered("d", acquire, 7, never, unknown)))}, dead, true,
		},
		"the dead may have waited, and was not notified": {
			[]history.Op{first, waits(200), client(1, answered("d", acquire, 7, 11, refused))}, dead, true,
		},
		"one may not have been notified": {[]history.Op{first, waits(200), client(9, answered("x", try, 5, 6, refused))}, dead, true},
	} {
		err := check.Inherited(c.ops, c.deaths, 10*time.Nanosecond, func(op history.Op) bool { return op.Client == 9 })
		require.Equal(t, c.fine, err == nil, "%s: %v", name, err)
	}
}

// Others may get ahead of a waiter in a queue only a few times.
func TestNobodyIsPassedOverForLong(t *testing.T) {
	ops := func(passed int, waiter history.Op) []history.Op {
		all := []history.Op{waiter}
		for n := range int64(passed) {
			op := client(1, answered("p", acquire, 10+10*n, 12+10*n, done, 10+n))
			op.Acquisition = string(rune('A' + n))
			all = append(all, op)
		}
		return all
	}
	granted := queued(4, client(2, answered("w", acquire, 3, 900, done, 800)))
	gaveUp := queued(4, client(2, answered("w", acquire, 3, 900, refused)))
	gaveUp.GaveUp = 899
	late := queued(95, granted)
	another := ops(5, granted) // until 12, 22, 32, 42 and 52, of which the last four by another process
	for i := range another[2:] {
		another[2+i].Client = 3
	}
	for name, c := range map[string]struct {
		ops  []history.Op
		fine bool
	}{
		"as late as is fine":                    {ops(3, granted), true}, // until 12, 22 and 32
		"too late":                              {ops(4, granted), false},
		"and given up":                          {ops(4, gaveUp), false},
		"before it waited":                      {ops(4, late), true},
		"it cannot be known":                    {ops(4, client(9, granted)), true},
		"as late as is fine by another process": {another[:5], true}, // that learned of its grant at 22
		"too late by another process":           {another, false},
	} {
		process := func(op history.Op) int { return op.Client }
		err := check.Overtaken(c.ops, 18*time.Nanosecond, process, func(op history.Op) bool { return op.Client == 9 })
		require.Equal(t, c.fine, err == nil, "%s: %v", name, err)
	}
}
