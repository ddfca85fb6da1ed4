package redlatch_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The goal of this file: Close reports no error if and only if Redis has no lock of the client any more. Unlock
// has failed before, in different ways.

func callFor(d time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return call(ctx)
}

// The answer to a local handoff is lost, so nobody knows which of the two acquisitions has the lock.
func TestCloseReleasesALockThatWasHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(t.Context())
		go func() { _, _ = s.mu.Lock(context.Background()) }()
		synctest.Wait()
		s.proxy.Inject(redistest.Rule{Match: runs("mutex/transfer"), Times: 1, Action: redistest.LoseReply()})
		time.AfterFunc(100*time.Millisecond, s.proxy.Down)
		time.AfterFunc(4*time.Second, s.proxy.Up)
		require.ErrorIs(t, callFor(500*time.Millisecond, h.Unlock), redlatch.ErrIndeterminate)
		require.NoError(t, s.locks.Close(t.Context()))
		require.Empty(t, s.stored())
		runtime.KeepAlive(h)
	})
}

// After a failed Export, an Unlock frees the lock. If that fails too, the background goes on.
func TestCloseReleasesALockThatCouldNotBeExported(t *testing.T) {
	play := func(t *testing.T, end func(t *testing.T, s *scene)) {
		synctest.Test(t, func(t *testing.T) {
			s := inBubble(t)
			h := s.lock(t.Context())
			s.proxy.Down()
			_ = callFor(300*time.Millisecond, func(ctx context.Context) error { _, err := h.Export(ctx, time.Minute); return err })
			require.Error(t, callFor(300*time.Millisecond, h.Unlock))
			end(t, s)
			runtime.KeepAlive(h)
		})
	}
	t.Run("redis comes back", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			time.AfterFunc(4*time.Second, s.proxy.Up)
			require.NoError(t, s.locks.Close(t.Context()))
			require.Empty(t, s.stored())
		})
	})
	t.Run("redis stays away", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			require.Error(t, callFor(4*time.Second, s.locks.Close))
			s.proxy.Up()
		})
	})
	t.Run("without Close", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			s.proxy.Up()
			time.Sleep(5 * time.Second)
			require.Empty(t, s.stored())
		})
	})
}

// A second Unlock has released the lock, so Close has nothing to wait for.
func TestCloseForgetsAReleaseThatSucceededLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(t.Context())
		s.proxy.BlackHole(redistest.AllTraffic)
		require.Error(t, callFor(500*time.Millisecond, h.Unlock))
		time.Sleep(100 * time.Millisecond)
		s.proxy.Heal()
		require.NoError(t, h.Unlock(t.Context()))
		require.Empty(t, s.stored())
		s.proxy.Down()
		require.NoError(t, callFor(3*time.Second, s.locks.Close))
		s.proxy.Up()
	})
}
