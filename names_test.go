package redlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// Names that differ only by braces are two locks. An event of one grants nothing to a waiter of the
// other.
func TestNamesThatDifferByBracesAreDifferentLocks(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"{door}", "door"}, {"door", "{door}"}} {
		t.Run("fair mutex "+names[0], func(t *testing.T) {
			t.Parallel()
			stage.OnBoth(t, func(s *stage.Stage) {
				holder, waiter, other := s.Actor(), s.Actor(), s.Actor()
				h := holder.LockFair(names[0])
				w := waiter.BeginFair(waiter.Ctx, names[0]).Asked(2) // it joins, and asks again when it listens
				s.Queued(names[0], 1)
				before := waiter.Scripts.Load()
				bounded, cancel := context.WithTimeout(other.Ctx, 20*time.Second)
				defer cancel()
				other.Ctx = bounded
				for range 3 {
					o := other.LockFair(names[1])
					s.Unlock(o)
					o = other.Lock(names[1])
					_, err := holder.FairMutex(names[1]).TryLock(holder.Ctx)
					require.ErrorIs(s, err, redlatch.ErrNotAcquired)
					_, err = other.Mutex(names[1]).ForceRelease(other.Ctx, o.ID())
					require.NoError(s, err)
					require.ErrorIs(s, o.Unlock(context.Background()), redlatch.ErrLost)
				}
				s.Settle()
				require.True(s, w.Pending())
				// In Redisson's layout, both names have one channel, so each of six releases may
				// make it ask.
				require.LessOrEqual(s, waiter.Scripts.Load(), before+6)
				require.True(s, h.Trusted())
				s.Queued(names[0], 1)
				s.Unlock(h)
				next := w.Got()
				require.Greater(s, next.Fence(), h.Fence())
				s.Unlock(next)
				s.NothingRemains()
			})
		})
		t.Run("semaphore "+names[0], func(t *testing.T) {
			t.Parallel()
			stage.OnBoth(t, func(s *stage.Stage) {
				holder, waiter, other := s.Actor(), s.Actor(), s.Actor()
				p := stage.MustAcquire(s.T, holder.Semaphore(names[0], 1), 1)
				before := waiter.Scripts.Load() + 2 // it joins, and asks again when it listens
				got, failed := stage.AcquireInBackground(waiter.Ctx, waiter.Semaphore(names[0], 1), 1)
				s.Await("it waits", func() bool { return waiter.Scripts.Load() == before })
				require.EqualValues(s, 1, s.Admin.ZCard(context.Background(), key.ForSemaphore(names[0]).Queue).Val())
				sem := other.Semaphore(names[1], 2) // another limit, so it is another semaphore
				for range 3 {
					both := stage.MustAcquire(s.T, sem, 2)
					require.NoError(s, both.Release(context.Background()))
				}
				s.Settle()
				require.Empty(s, got)
				require.Empty(s, failed)
				require.Equal(s, before, waiter.Scripts.Load(), "nothing was said to the waiter")
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
	stage.OnBoth(t, func(s *stage.Stage) {
		holder, waiter, other := s.Actor(), s.Actor(), s.Actor()
		h := holder.Lock("{door}")
		w := waiter.Begin(waiter.Ctx, "{door}").Asked(2)
		last := int64(0)
		for i := range int64(3) {
			o := other.Lock("door")
			require.Greater(s, o.Fence(), max(last, h.Fence()))
			last = o.Fence()
			s.Unlock(o)
			w.Asked(3 + i)
		}
		inner, err := holder.Mutex("{door}").Lock(h.Context())
		require.NoError(s, err)
		require.Equal(s, h.Fence(), inner.Fence(), "re-entry keeps the fence")
		s.Unlock(inner)
		require.True(s, w.Pending())
		s.Unlock(h)
		next := w.Got()
		require.Greater(s, next.Fence(), last)
		s.Unlock(next)
		s.NothingRemains()
	})
}

// A prefix is a part of the name and nothing else.
func TestAPrefixIsAPartOfTheName(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		whole, split := s.Actor(), s.Actor(redlatch.WithPrefix("svc:"))
		h := whole.Lock("svc:door")
		_, err := split.FairMutex("door").TryLock(split.Ctx)
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &busy)
		require.Equal(s, "svc:door", busy.Name)
		require.Equal(s, h.ID(), busy.Holder)
		s.Unlock(h)
	})
}
