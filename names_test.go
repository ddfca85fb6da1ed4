package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
)

// Names that differ only by braces are two locks. An event of one grants nothing to a waiter of the
// other.
func TestNamesThatDifferByBracesAreDifferentLocks(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"{door}", "door"}, {"door", "{door}"}} {
		t.Run("fair mutex "+names[0], func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(s *stage) {
				holder, waiter, other := s.actor(), s.actor(), s.actor()
				h := holder.lockFair(names[0])
				w := waiter.beginFair(waiter.ctx, names[0]).asked(2) // it joins, and asks again when it listens
				s.queued(names[0], 1)
				before := waiter.scripts.Load()
				bounded, cancel := context.WithTimeout(other.ctx, 20*time.Second)
				defer cancel()
				other.ctx = bounded
				for range 3 {
					o := other.lockFair(names[1])
					s.unlock(o)
					o = other.lock(names[1])
					_, err := holder.FairMutex(names[1]).TryLock(holder.ctx)
					require.ErrorIs(s, err, redlatch.ErrNotAcquired)
					_, err = other.Mutex(names[1]).ForceRelease(other.ctx, o.ID())
					require.NoError(s, err)
					require.ErrorIs(s, o.Unlock(context.Background()), redlatch.ErrLost)
				}
				s.settle()
				require.True(s, w.pending())
				// In Redisson's layout, both names have one channel, so each of six releases may make it ask.
				require.LessOrEqual(s, waiter.scripts.Load(), before+6)
				require.True(s, h.Trusted())
				s.queued(names[0], 1)
				s.unlock(h)
				next := w.got()
				require.Greater(s, next.Fence(), h.Fence())
				s.unlock(next)
				s.nothingRemains()
			})
		})
		t.Run("semaphore "+names[0], func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(s *stage) {
				holder, waiter, other := s.actor(), s.actor(), s.actor()
				p := mustAcquire(s.T, holder.Semaphore(names[0], 1), 1)
				before := waiter.scripts.Load() + 2 // it joins, and asks again when it listens
				got, failed := acquires(waiter.ctx, waiter.Semaphore(names[0], 1), 1)
				s.await("it waits", func() bool { return waiter.scripts.Load() == before })
				require.EqualValues(s, 1, s.admin.ZCard(context.Background(), key.ForSemaphore(names[0]).Queue).Val())
				sem := other.Semaphore(names[1], 2) // another limit, so it is another semaphore
				for range 3 {
					both := mustAcquire(s.T, sem, 2)
					require.NoError(s, both.Release(context.Background()))
				}
				s.settle()
				require.Empty(s, got)
				require.Empty(s, failed)
				require.Equal(s, before, waiter.scripts.Load(), "nothing was said to the waiter")
				require.True(s, p.Trusted())
				require.NoError(s, p.Release(context.Background()))
				require.NoError(s, (<-got).Release(context.Background()))
			})
		})
	}
}

// In Redisson's layout, the two names share the channel and the fence. A release of one makes a
// waiter of the other ask once, without success. The fences of both grow.
func TestNamesThatDifferByBracesShareChannelAndFenceInPeace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, waiter, other := s.actor(), s.actor(), s.actor()
		h := holder.lock("{door}")
		w := waiter.begin(waiter.ctx, "{door}").asked(2)
		last := int64(0)
		for i := range int64(3) {
			o := other.lock("door")
			require.Greater(s, o.Fence(), max(last, h.Fence()))
			last = o.Fence()
			s.unlock(o)
			w.asked(3 + i)
		}
		inner, err := holder.Mutex("{door}").Lock(h.Context())
		require.NoError(s, err)
		require.Equal(s, h.Fence(), inner.Fence(), "re-entry keeps the fence")
		s.unlock(inner)
		require.True(s, w.pending())
		s.unlock(h)
		next := w.got()
		require.Greater(s, next.Fence(), last)
		s.unlock(next)
		s.nothingRemains()
	})
}

// A prefix is a part of the name and nothing else.
func TestAPrefixIsAPartOfTheName(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		whole, split := s.actor(), s.actor(redlatch.WithPrefix("svc:"))
		h := whole.lock("svc:door")
		_, err := split.FairMutex("door").TryLock(split.ctx)
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &busy)
		require.Equal(s, "svc:door", busy.Name)
		require.Equal(s, h.ID(), busy.Holder)
		s.unlock(h)
	})
}
