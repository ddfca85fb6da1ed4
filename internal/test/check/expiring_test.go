package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// The end of a lease excuses a second holder only if the first holder was notified of it, or never
// released what it had.
func TestWhatTheEndOfALeaseExcuses(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	first, second := held(answered("a", acquire, 1, 2, done, 10)), held(answered("b", acquire, 20, 21, done, 20))
	again, reentry := held(answered("a", acquire, 3, 4, done, 10)), held(answered("a", acquire, 30, 31, done, 10))
	late, gone := held(answered("a", acquire, 1, 140, done, 10)), held(answered("b", release, 142, 143, done))
	lostAgain := held(answered("a", acquire, 30, 31, lost))
	given := func(from, to int64, o history.Outcome) history.Op {
		return held(answered("a", release, from, to, o, 10))
	}
	for name, c := range map[string]struct {
		ops  []history.Op
		fine bool
	}{
		"notified of the loss":            {[]history.Op{first, second, given(50, 51, lost)}, true},
		"ended before it was answered":    {[]history.Op{late, second, gone, given(150, 151, lost)}, true},
		"answered late, and held":         {[]history.Op{late, second, gone, given(150, 151, done)}, false},
		"answered that it released it":    {[]history.Op{first, second, given(50, 51, done)}, false},
		"nobody knows, while it asks":     {[]history.Op{first, given(10, 30, unknown), second}, true},
		"nobody knows, but later":         {[]history.Op{first, second, given(50, 60, unknown)}, false},
		"never given back":                {[]history.Op{first, second}, true},
		"one of two given back":           {[]history.Op{first, again, given(5, 6, done), second}, true},
		"both given back":                 {[]history.Op{first, again, given(5, 6, done), second, given(50, 51, done)}, false},
		"entered again after the next":    {[]history.Op{first, second, reentry, given(50, 51, lost), given(52, 53, lost)}, false},
		"a re-entry notified of the loss": {[]history.Op{first, second, lostAgain, given(50, 51, lost)}, true},
		"refused within a lease after":    {[]history.Op{first, given(50, 51, lost), by("a", answered("b", try, 120, 121, refused))}, true},
		"refused a lease after":           {[]history.Op{first, given(50, 51, lost), by("a", answered("b", try, 160, 161, refused))}, false},
		"a smaller fence":                 {[]history.Op{first, held(answered("b", acquire, 20, 21, done, 5)), given(50, 51, lost)}, false},
	} {
		ops := check.Expiring(check.Abandoned(c.ops), 100*time.Nanosecond)
		err := check.Linearizable(ops, check.ReentrantMutex())
		require.Equal(t, c.fine, err == nil, "%s: %v", name, err)
		err = check.Linearizable(ops, check.FairMutex())
		require.Equal(t, c.fine, err == nil, "%s, in order: %v", name, err)
	}
}

// A grant that its waiter does not know of excuses refusals that name it while its call is in
// progress, and no others.
func TestWhatAWaiterNeverLearnedExcuses(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	waited := held(answered("a", acquire, 1, 50, done, 20))
	first, given := held(answered("b", acquire, 20, 21, done, 10)), held(answered("b", release, 22, 23, done))
	left := held(answered("a", release, 52, 53, done))
	all, nobody := func(history.Op) bool { return true }, func(history.Op) bool { return false }
	refusal := func(holder string, from, to int64) history.Op {
		return by(holder, answered("c", try, from, to, refused))
	}
	for name, c := range map[string]struct {
		refused []history.Op
		fine    bool
	}{
		"named while it waits":  {[]history.Op{refusal("a", 10, 11)}, true},
		"again, when b is gone": {[]history.Op{refusal("a", 10, 11), refusal("a", 30, 31)}, true},
		"before it asked":       {[]history.Op{refusal("a", -5, -4)}, false},
		"as another, of before": {[]history.Op{refusal("x", 10, 11)}, true},
		"when nobody waits":     {[]history.Op{refusal("x", 60, 61)}, false},
	} {
		ops := append([]history.Op{waited, first, given, left}, c.refused...)
		require.Equal(t, c.fine, check.Linearizable(check.Unnotified(ops, all), check.ReentrantMutex()) == nil, name)
		require.Error(t, check.Linearizable(check.Unnotified(ops, nobody), check.ReentrantMutex()), "without it")
	}
	over := []history.Op{held(answered("a", acquire, 1, 5, done, 20)), held(answered("a", release, 6, 7, done)), by("a", answered("c", try, 10, 11, refused))}
	require.Error(t, check.Linearizable(check.Unnotified(over, all), check.ReentrantMutex()), "named when it had been given back")
}

// A delayed attempt of a request excuses refusals that name its acquisition after the release, and
// no others.
func TestWhatADelayedAttemptExcuses(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	granted, released := held(answered("a", acquire, 1, 5, done, 10)), held(answered("a", release, 6, 7, done))
	another, released2 := held(answered("b", acquire, 20, 21, done, 20)), held(answered("b", release, 22, 23, done))
	for name, c := range map[string]struct {
		refused history.Op
		delayed bool
		fine    bool
	}{
		"named after its release":           {by("a", answered("c", try, 10, 11, refused)), true, true},
		"and after another had the lock":    {by("a", answered("c", try, 30, 31, refused)), true, true},
		"but its requests were not delayed": {by("a", answered("c", try, 10, 11, refused)), false, false},
		"another, which was never granted":  {by("x", answered("c", try, 10, 11, refused)), true, false},
		"before it asked":                   {by("a", answered("c", try, -2, -1, refused)), true, false},
	} {
		ops := check.Delayed([]history.Op{granted, released, another, released2, c.refused}, func(history.Op) bool { return c.delayed })
		require.Equal(t, c.fine, check.Linearizable(ops, check.ReentrantMutex()) == nil, name)
	}
}

// Without its refusals, a history still says who held what at the same time.
func TestGrantsAreJudgedWithoutRefusals(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	first, second := held(answered("a", acquire, 10, 11, done, 10)), held(answered("b", acquire, 20, 21, done, 20))
	unjustified := by("x", answered("b", try, 1, 2, refused))
	given := held(answered("a", release, 15, 16, done))
	for name, c := range map[string]struct {
		ops  []history.Op
		fine bool
	}{
		"refused because of nobody": {[]history.Op{unjustified, first, given, second}, true},
		"two at one time":           {[]history.Op{unjustified, first, second}, false},
	} {
		require.Equal(t, c.fine, check.Linearizable(check.Grants(c.ops), check.ReentrantMutex()) == nil, name)
	}
	require.Error(t, check.Linearizable([]history.Op{unjustified, first, given, second}, check.ReentrantMutex()), "with them")
	require.Equal(t, history.Refused, unjustified.Outcome)
}

// A search that tries each subset of the grants that the waiter may have missed does not end.
func TestManyRefusalsNameOneGrantThatItsWaiterMissed(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	ops := []history.Op{
		held(answered("b", acquire, 1, 1000, done, 20)),
		held(answered("a", acquire, 2, 900, done, 10)), held(answered("a", release, 910, 920, done)),
		held(answered("b", release, 1010, 1020, done)),
	}
	for i := range int64(24) {
		ops = append(ops, by("a", answered("c", try, 30*i+30, 30*i+40, refused)), by("a", answered("d", try, 30*i+31, 30*i+41, refused)))
	}
	excused := check.Unnotified(ops, func(op history.Op) bool { return op.Owner == "a" })
	require.NoError(t, check.Linearizable(excused, check.ReentrantMutex()))
	late := append(slices.Clone(excused), by("b", answered("e", try, 1030, 1040, refused)))
	require.ErrorContains(t, check.Linearizable(late, check.ReentrantMutex()), "(illegal)")
}

// The grant that its waiter missed ends before the next one, so it excuses no refusal to the holder
// itself.
func TestAMissedGrantExcusesNoRefusalToTheHolder(t *testing.T) {
	held := func(op history.Op) history.Op { op.Acquisition = op.Owner; return op }
	ops := []history.Op{
		held(answered("b", acquire, 1, 100, done, 20)),
		held(answered("a", acquire, 2, 3, done, 10)), by("b", answered("a", try, 10, 11, refused)), held(answered("a", release, 20, 21, done)),
		held(answered("b", release, 110, 120, done)),
	}
	excused := check.Unnotified(ops, func(op history.Op) bool { return op.Owner == "b" })
	require.ErrorContains(t, check.Linearizable(excused, check.ReentrantMutex()), "(illegal)")
	excused[2].Owner = "c" // to anybody else, the refusal is right
	require.NoError(t, check.Linearizable(excused, check.ReentrantMutex()))
}
