package mutex

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// An old failure belongs to a caller that has left.
func TestAFailureIsRememberedForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("redis cannot be reached")
		var r LockState
		require.NoError(t, r.LastFailure())
		r.SetLastFailure(failure)
		time.Sleep(10 * time.Second)
		require.Equal(t, failure, r.LastFailure())
		time.Sleep(time.Nanosecond)
		require.NoError(t, r.LastFailure())
	})
}

// A refusal names the holder to the waits that had begun by then, with what is left of its lease.
func TestARefusalIsForTheWaitsOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r LockState
		require.Nil(t, r.RefusalSince(Now()))
		before := Now()
		time.Sleep(time.Second)
		r.NoteRefusal(Now(), lockerr.NotAcquiredError{Holder: "somebody:1", Remaining: 3 * time.Second})
		time.Sleep(time.Second)
		require.Nil(t, r.RefusalSince(Now()), "a later wait was not refused")
		require.Equal(t, &lockerr.NotAcquiredError{Holder: "somebody:1", Remaining: 2 * time.Second}, r.RefusalSince(before))
		time.Sleep(time.Hour)
		require.Positive(t, r.RefusalSince(before).Remaining, "0 means that it is not known")
		r.NoteRefusal(Now(), lockerr.NotAcquiredError{Holder: "somebody:2", Remaining: -1})
		time.Sleep(time.Second)
		require.Equal(t, time.Duration(-1), r.RefusalSince(before).Remaining, "a lease without an end keeps none")

		sent := Now()
		time.Sleep(time.Millisecond)
		began := Now()
		time.Sleep(time.Millisecond)
		r.NoteRefusal(sent, lockerr.NotAcquiredError{Holder: "somebody:3"})
		require.Nil(t, r.RefusalSince(began), "the holder may have released the lock before the wait began")
	})
}

func TestAGrantEndsTheLastFailure(t *testing.T) {
	var r LockState
	r.SetLastFailure(errors.New("redis cannot be reached"))
	r.AddHeld(&acquisition.Acquisition{})
	require.NoError(t, r.LastFailure())
}

// A watcher that is busy hears of several grants once, and keeps nobody from a grant.
func TestGrantsDoNotWaitForWatchers(t *testing.T) {
	var r LockState
	o := owner.New()
	granted, stop := r.NotifyOnGrant(o)
	defer stop()
	one := &acquisition.Acquisition{Grant: acquisition.Grant{Owner: o}}
	two := &acquisition.Acquisition{Grant: acquisition.Grant{Owner: o}}
	r.AddHeld(one)
	r.AddHeld(two)
	require.Len(t, granted, 1)
	r.RemoveHeld(one)
	require.Equal(t, []*acquisition.Acquisition{two}, r.held)
}

// A fence of Redisson counts from one, and says nothing of the time.
func TestAFenceOfTheClockSaysWhenItWasGivenOut(t *testing.T) {
	year2000 := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	now := year2000.Add(time.Hour)
	for fence, want := range map[time.Time]time.Time{
		time.UnixMicro(7):               {},
		year2000.Add(-time.Microsecond): {},
		year2000:                        year2000,
		year2000.Add(time.Microsecond):  year2000.Add(time.Microsecond),
		now:                             now,
		now.Add(time.Microsecond):       {},
	} {
		got := GrantTime(fence.UnixMicro(), lua.Time(now.UnixMicro()))
		require.True(t, want.Equal(got), "%v, not %v", got, want)
	}
}
