package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: work that has only a context reaches the hold that the context is of, and
// no other hold.

func TestAContextHasItsHold(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		type key struct{}
		r.IsOfNone(r.Context())
		h := r.Lock(r.Context(), "a")
		r.IsOf(h.Context(), h)
		r.IsOf(context.WithValue(h.Context(), key{}, "kept"), h)
		ended, cancel := context.WithCancel(h.Context())
		cancel()
		r.IsOf(context.WithoutCancel(ended), h)
		r.Unlock(h)
		r.IsOf(ended, h) // a function learns from the hold that it has ended
		require.False(r, h.Trusted())
	})
}

func TestTheFunctionOfDoReachesItsFence(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		require.NoError(r, r.Mutex("a").Do(r.Context(), func(ctx context.Context) error {
			outer, ok := lock.FromContext(ctx)
			require.True(r, ok)
			require.Equal(r, "a", outer.Name())
			require.NotZero(r, outer.Fence())
			require.True(r, outer.Trusted())
			return r.Mutex("b").Do(ctx, func(ctx context.Context) error {
				inner, ok := lock.FromContext(ctx)
				require.True(r, ok)
				require.Equal(r, "b", inner.Name())
				return r.Mutex("a").Do(ctx, func(ctx context.Context) error {
					again, ok := lock.FromContext(ctx)
					require.True(r, ok)
					require.Equal(r, outer.Fence(), again.Fence(), "one grant")
					require.NotSame(r, outer, again, "another hold")
					return nil
				})
			})
		}))
	})
}

func TestANestedLockFindsItsOwnHold(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		r.Finds(r.Context(), "a", nil)
		outer := r.Lock(r.Context(), "a")
		inner := r.Lock(outer.Context(), "b")
		type key struct{}
		ctx, cancel := inner.Bind(context.WithValue(r.Context(), key{}, "unrelated"))
		defer cancel()
		for _, ctx := range []context.Context{inner.Context(), ctx, context.WithoutCancel(ctx)} {
			r.Finds(ctx, "b", inner)
			r.IsOf(ctx, inner)
			r.Finds(ctx, "c", nil)
		}
		r.Finds(inner.Context(), "a", outer)
		r.Finds(outer.Context(), "b", nil)

		again := r.Lock(inner.Context(), "a")
		r.Finds(again.Context(), "a", again)
		r.Finds(again.Context(), "b", inner)
		joined, cancel := outer.Bind(again.Context())
		defer cancel()
		r.Finds(joined, "a", outer)
		r.Finds(joined, "b", inner)
		r.Unlock(again, inner, outer)
		r.Finds(inner.Context(), "a", outer) // it says itself that it has ended
	})
}

func TestALockFindsNoHoldThatItsContextDoesNotReenter(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		h := r.Lock(r.Context(), "a")
		chain := redlatch.WithOwner(h.Context())
		r.Finds(chain, "a", nil)
		own := r.Lock(chain, "b")
		r.Finds(own.Context(), "a", nil)
		r.Finds(own.Context(), "b", own)
		joined, cancel := h.Bind(own.Context())
		defer cancel()
		r.Finds(joined, "a", h)
		r.Unlock(own, h)
	})
}

// A semaphore may have the name of a mutex. A permit around a lock of that name, or inside, is no
// hold of it.
func TestALockFindsNoPermitOfItsName(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		p, err := r.Locks.Semaphore("a", 1).Acquire(r.Context(), 1)
		require.NoError(r, err)
		r.Finds(p.Context(), "a", nil)
		h := r.Lock(p.Context(), "a")
		r.Finds(h.Context(), "a", h)
		r.Unlock(h)
		require.NoError(r, p.Release(r.Context()))
		h = r.Lock(r.Context(), "a")
		p, err = r.Locks.Semaphore("a", 1).Acquire(h.Context(), 1)
		require.NoError(r, err)
		r.Finds(p.Context(), "a", h)
		require.NoError(r, p.Release(r.Context()))
		r.Unlock(h)
	})
}

// Two clients may have two servers, and their locks of one name are two locks.
func TestAClientFindsNoHoldOfAnother(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		other := stage.LocksOn(r.T, redistest.Bubble(r.T).Client())
		h := r.Lock(r.Context(), "a")
		_, ok := other.Mutex("a").HoldFrom(h.Context())
		require.False(r, ok)
		ofOther, err := other.Mutex("a").Lock(h.Context())
		require.NoError(r, err)
		r.Finds(ofOther.Context(), "a", h)
		found, ok := other.Mutex("a").HoldFrom(ofOther.Context())
		require.True(r, ok)
		require.Same(r, ofOther, found)
		r.Unlock(ofOther)
		_, ok = r.Locks.Mutex("bad\nname").HoldFrom(h.Context())
		require.False(r, ok)
		var none context.Context
		_, ok = r.Locks.Mutex("a").HoldFrom(none)
		require.False(r, ok)
		r.Unlock(h)
	})
}

// A permit has no fence, and must not hide the one of the lock around it.
func TestAPermitHidesNoHold(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		within := func(ctx context.Context, check func(ctx context.Context)) {
			require.NoError(r, r.Locks.Semaphore("pool", 3).Do(ctx, 1, func(ctx context.Context) error {
				check(ctx)
				return nil
			}))
			p, err := r.Locks.Semaphore("pool", 3).Acquire(ctx, 1)
			require.NoError(r, err)
			check(p.Context())
			require.NoError(r, p.Release(ctx))
		}
		within(r.Context(), r.IsOfNone)
		h := r.Lock(r.Context(), "a")
		within(h.Context(), func(ctx context.Context) { r.IsOf(ctx, h) })
		r.Unlock(h)
	})
}

// A semaphore finds the innermost permit of its own, whatever is between.
func TestASemaphoreFindsItsPermit(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		pool, other := r.Locks.Semaphore("a", 9), r.Locks.Semaphore("b", 9)
		finds := func(ctx context.Context, s *redlatch.Semaphore, id string, units int) {
			p, ok := s.PermitFrom(ctx)
			require.Equal(r, id != "", ok)
			require.Equal(r, id, p.ID())
			require.Equal(r, units, p.Units())
		}
		finds(r.Context(), pool, "", 0)
		h := r.Lock(r.Context(), "a") // a mutex of that name
		finds(h.Context(), pool, "", 0)
		p, err := pool.Acquire(h.Context(), 3)
		require.NoError(r, err)
		finds(p.Context(), other, "", 0)
		require.NoError(r, other.Do(p.Context(), 2, func(ctx context.Context) error {
			finds(ctx, pool, p.ID(), 3)
			own, ok := other.PermitFrom(ctx)
			require.True(r, ok)
			require.Equal(r, 2, own.Units())
			finds(redlatch.WithOwner(ctx), other, own.ID(), 2) // there is no re-entry that it could end
			return pool.TryDo(ctx, 1, func(ctx context.Context) error {
				inner, ok := pool.PermitFrom(ctx)
				require.True(r, ok)
				require.Equal(r, 1, inner.Units())
				require.NotEqual(r, p.ID(), inner.ID())
				finds(ctx, other, own.ID(), 2)
				r.Finds(ctx, "a", h)
				return nil
			})
		}))
		bound, cancel := p.Bind(r.Context())
		defer cancel()
		finds(bound, pool, p.ID(), 3)

		another := stage.LocksOn(r.T, redistest.Bubble(r.T).Client())
		finds(bound, another.Semaphore("a", 9), "", 0)
		finds(bound, r.Locks.Semaphore("bad\nname", 9), "", 0)
		var none context.Context
		finds(none, pool, "", 0)
		require.NoError(r, p.Release(r.Context()))
		found, ok := pool.PermitFrom(bound) // it says itself that it has ended
		require.True(r, ok)
		require.False(r, found.Trusted())
		r.Unlock(h)
	})
}

// Do leaves a permit alone that its function has released with ReleaseAfter.
func TestAFunctionKeepsTheUnitsOfItsPermit(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		pool := r.Locks.Semaphore("a", 3)
		require.NoError(r, pool.Do(r.Context(), 3, func(ctx context.Context) error {
			p, _ := pool.PermitFrom(ctx)
			return p.ReleaseAfter(ctx, time.Minute)
		}))
		_, err := pool.TryAcquire(r.Context(), 1)
		require.ErrorIs(r, err, redlatch.ErrNotAcquired)
		time.Sleep(time.Minute + time.Second)
		require.NoError(r, pool.TryDo(r.Context(), 3, func(context.Context) error { return nil }))
	})
}

// After WithOwner, a context does not re-enter the locks of its starter, so it has none of their
// holds either.
func TestANewOwnerHasNoHoldOfItsStarter(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		h := r.Lock(r.Context(), "a")
		chain := redlatch.WithOwner(h.Context())
		r.IsOfNone(chain)
		own := r.Lock(chain, "b")
		r.IsOfNone(chain)
		r.IsOf(own.Context(), own)
		r.Unlock(own, h)
	})
}

func TestAHoldThatNoLockMadeIsInNoContext(t *testing.T) {
	_, ok := lock.FromContext(new(lock.Hold).Context())
	require.False(t, ok)
}
