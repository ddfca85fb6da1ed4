package redlatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Handing over needs a new fence; releasing does not. Where there can be none,
// Unlock still unlocks, at once, and it is the next who is told.
func TestUnlockWithoutAUsableFenceStillUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		ctx := context.Background()
		h := s.lock(ctx)
		next := make(chan error, 1)
		go func() {
			_, err := s.mu.Lock(ctx)
			next <- err
		}()
		synctest.Wait()
		require.NoError(t, s.direct.Set(ctx, "redisson_lock_token:{"+s.name+"}", "seven", 0).Err())
		s.unlock(h)
		err := <-next
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.ErrorContains(t, err, "BADFENCE")
		s.free()
		s.nothingLeft()
	})
}

// A key of another type is nobody's lock. Unlock says so, before any renewal
// could, and leaves it alone.
func TestUnlockOfAKeyOfAnotherTypeIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		ctx := context.Background()
		h := s.lock(ctx)
		require.NoError(t, s.direct.Set(ctx, s.name, "mine", 0).Err())
		require.ErrorIs(t, h.Unlock(ctx), redlatch.ErrLost)
		require.Equal(t, "mine", s.direct.Get(ctx, s.name).Val())
	})
}

// An Unlock that Redis refuses is tried again, and ends with that refusal, before the
// lease does: then Redis would say that there is nothing any more.
func TestUnlockThatIsRefusedToTheEndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 10 * time.Second
		s := inBubble(t, redlatch.WithLease(lease), redlatch.WithoutRenewal())
		s.proxy.Inject(redistest.Rule{Match: aLastOne, Action: redistest.Refuse("NOPERM no DEL for you")})
		for held := time.Duration(0); held < 6*time.Second; held += lease / 40 {
			h := s.lock(context.Background())
			time.Sleep(held)
			err := h.Unlock(context.Background())
			require.ErrorIs(t, err, redlatch.ErrRefused, "held for %v", held)
			require.NotErrorIs(t, err, redlatch.ErrLost)
			require.NotEmpty(t, s.stored(), "its lease has not ended")
			time.Sleep(lease) // now it has
		}
	})
}
