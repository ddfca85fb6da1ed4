package migrating_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// With the same key, nobody gets the lock of another library. redlatch refuses, and does not wait.
func TestTheKeysOfOtherLibrariesExclude(t *testing.T) {
	c := open(t)
	for name, other := range map[string]struct {
		key  string // of the lock "orders:42"
		hold func(t *testing.T) (release func())
		try  func(ctx context.Context) error
		busy bool // it says that somebody else has the lock, and not that the key is of another type
	}{
		"redsync":     {"orders:42", c.redsyncHolds, func(ctx context.Context) error { return tryRedsync(ctx, c.rs) }, true},
		"redislock":   {"orders:42", c.redislockHolds, func(ctx context.Context) error { return tryRedislock(ctx, c.locker) }, false},
		"rueidislock": {"rueidislock:0:orders:42", c.rueidisHolds, func(ctx context.Context) error { return tryRueidislock(ctx, c.rueidis) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			mu := c.locks.Mutex(other.key)
			release := other.hold(t)
			_, err := mu.Lock(t.Context())
			require.ErrorIs(t, err, redlatch.ErrRefused)
			require.ErrorContains(t, err, "WRONGTYPE")
			release()

			hold, err := mu.Lock(t.Context())
			require.NoError(t, err)
			charges.Store(0)
			err = other.try(t.Context())
			require.Equal(t, other.busy, errors.Is(err, errBusy), err)
			require.Error(t, err)
			require.Zero(t, charges.Load())
			require.NoError(t, hold.Unlock(t.Context()), "it is still there")
			require.NoError(t, other.try(t.Context()))
		})
	}
}

// Releases that follow each other share a lock. The first and the last do not, and so may not run
// at once.
func TestReleasesThatFollowEachOtherExclude(t *testing.T) {
	c := open(t)
	locks, err := redlatch.New(c.rdb, redlatch.WithPrefix("locks:"))
	require.NoError(t, err)
	defer locks.Close(t.Context())
	other, err := redlatch.New(c.rdb, redlatch.WithPrefix("locks:")) // another process
	require.NoError(t, err)
	defer other.Close(t.Context())

	check := func() {
		require.ErrorIs(t, tryRedsync(t.Context(), c.rs), errBusy, "the release before")
		require.ErrorIs(t, tryRedlatch(t.Context(), other), errBusy, "the release after")
	}
	whileCharging.Store(&check)
	charges.Store(0)
	require.NoError(t, rollOver(t.Context(), locks, c.rs))
	require.EqualValues(t, 1, charges.Load())
	require.Nil(t, whileCharging.Load(), "it was checked")

	release := c.redsyncHolds(t)
	defer release()
	require.NoError(t, tryRedlatch(t.Context(), other), "nothing that they share")
}

// The table of the page says what a release does with a context that has ended.
func TestReleaseWithAnEndedContext(t *testing.T) {
	c := open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	m := c.rs.NewMutex("redsync")
	require.NoError(t, m.Lock())
	ok, err := m.UnlockContext(ended)
	require.False(t, ok)
	require.ErrorIs(t, err, context.Canceled)

	l, err := c.locker.Obtain(t.Context(), "redislock", time.Minute, nil)
	require.NoError(t, err)
	require.ErrorIs(t, l.Release(ended), context.Canceled)

	h, err := c.locks.Mutex("redlatch").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ended))

	left, err := c.rdb.Exists(t.Context(), "redsync", "redislock", "redlatch").Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, left)
}

// The table of the page says what ends the hold of each library.
func TestTheContextOfTheWait(t *testing.T) {
	c := open(t)
	wait, cancel := context.WithCancel(t.Context())
	work, release, err := c.rueidis.WithContext(wait, "orders:42")
	require.NoError(t, err)
	hold, err := c.locks.Mutex("orders:42").Lock(wait)
	require.NoError(t, err)
	cancel()

	<-work.Done()
	release()
	_, release, err = c.rueidis.TryWithContext(t.Context(), "orders:42")
	require.NotErrorIs(t, err, rueidislock.ErrNotLocked, "the context of the wait ended the hold")
	release()
	require.True(t, hold.Trusted(), "the context of the wait did not end the hold")
	require.NoError(t, hold.Unlock(t.Context()))
}
