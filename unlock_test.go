package redlatch_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
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
