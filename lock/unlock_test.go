package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// A hand-over needs a new fence, but a release does not. If there can be no new fence, Unlock still
// unlocks immediately, and the next request gets the error.
func TestUnlockWithoutAUsableFenceStillUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		h := s.Lock(ctx)
		next := make(chan error, 1)
		go func() {
			_, err := s.Mutex.Lock(ctx)
			next <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Direct.Set(ctx, "redisson_lock_token:{"+s.Name+"}", "seven", 0).Err())
		s.Unlock(h)
		err := <-next
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.ErrorContains(t, err, "BADFENCE")
		s.Free()
		s.NothingLeft()
	})
}

// A key of another type is nobody's lock. Unlock reports a loss before any renewal could, and does
// not change the key.
func TestUnlockOfAKeyOfAnotherTypeIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		h := s.Lock(ctx)
		require.NoError(t, s.Direct.Set(ctx, s.Name, "mine", 0).Err())
		require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrLost)
		require.Equal(t, "mine", s.Direct.Get(ctx, s.Name).Val())
	})
}

// If Redis refuses an Unlock, the client retries. Unlock returns the refusal before the lease ends,
// because after that Redis would say that there is no lock any more.
func TestUnlockThatIsRefusedToTheEndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 10 * time.Second
		s := stage.InBubble(t, redlatch.WithLease(lease), redlatch.WithoutRenewal())
		s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Action: redistest.Refuse("NOPERM no DEL for you")})
		for held := time.Duration(0); held < 6*time.Second; held += lease / 40 {
			h := s.Lock(context.Background())
			time.Sleep(held)
			err := h.Unlock(context.Background())
			require.ErrorIs(t, err, redlatch.ErrRefused, "held for %v", held)
			require.NotErrorIs(t, err, redlatch.ErrLost)
			require.NotEmpty(t, s.Stored(), "its lease has not ended")
			time.Sleep(lease) // now the lease has ended
		}
	})
}

// An Unlock fails, the background releases the lock, and the user calls Unlock again. The lock was
// released and not lost, whatever the first error was. That also holds if the client got no answer
// to the release in the background.
func TestUnlockTriedAgainAfterTheBackgroundReleasedSucceeds(t *testing.T) {
	failures := map[string]struct {
		fault redistest.Action
		kind  error
	}{
		"not available": {redistest.Refuse("LOADING Redis is loading the dataset in memory"), redlatch.ErrUnavailable},
		"refused":       {redistest.Refuse("NOPERM this user has no permissions"), redlatch.ErrRefused},
		"not answered":  {redistest.CutRequest(), redlatch.ErrIndeterminate},
	}
	backgrounds := map[string]redistest.Action{
		"answered": {},
		"cut":      redistest.CutReply(),
		"late":     redistest.DelayReply(time.Hour),
	}
	for kind, k := range stage.Kinds {
		for failure, first := range failures {
			for background, then := range backgrounds {
				t.Run(kind+"/"+failure+", the background "+background, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := stage.InBubble(t)
						ctx := context.Background()
						h, release, err := k.Take(s.Locks, ctx)
						require.NoError(t, err)
						lost := h.Lost()

						broken := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(k.Release), Action: first.fault})
						bounded, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
						defer cancel()
						require.ErrorIs(t, release(bounded), first.kind)
						require.NotZero(t, broken.Bites())
						done := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(k.Release), Times: 1, Action: then})
						broken.Disarm()
						time.Sleep(5 * time.Second)
						require.Equal(t, 1, done.Bites(), "the background has released")

						require.NoError(t, release(ctx))
						select {
						case <-lost:
							require.Fail(t, "Lost is closed, and nothing was lost")
						default:
						}
						require.ErrorIs(t, release(ctx), redlatch.ErrNotHeld)
					})
				})
			}
		}
	}
}

// The context of an outer hold ends when that hold is released. An Unlock with that context goes
// on.
func TestUnlockWithTheContextOfAnyHoldIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(context.Background())
		inner := stage.MustLock(t, outer.Context(), s.Locks.Mutex("inner"))
		late := s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Times: 1, Action: redistest.DelayReply(time.Second)})
		unlocked := make(chan error, 1)
		go func() { unlocked <- inner.Unlock(outer.Context()) }()
		late.Await(1)
		s.Unlock(outer)
		require.NoError(t, <-unlocked)
		s.NothingLeft()
	})
}
