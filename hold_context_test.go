package redlatch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: work that has only a context reaches the hold that the context is of, and
// no other hold.

// isOf asserts that the hold of ctx is h, the very handle.
func (r *reentry) isOf(ctx context.Context, h *lock.Hold) {
	r.Helper()
	found, ok := lock.FromContext(ctx)
	require.True(r, ok)
	require.Same(r, h, found)
	found, ok = redlatch.HoldFromContext(ctx)
	require.True(r, ok)
	require.Same(r, h, found)
}

// isOfNone asserts that ctx has no hold.
func (r *reentry) isOfNone(ctx context.Context) {
	r.Helper()
	h, ok := lock.FromContext(ctx)
	require.False(r, ok)
	require.Nil(r, h)
}

func TestAContextHasItsHold(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		type key struct{}
		r.isOfNone(r.Context())
		h := r.lock(r.Context(), "a")
		r.isOf(h.Context(), h)
		r.isOf(context.WithValue(h.Context(), key{}, "kept"), h)
		ended, cancel := context.WithCancel(h.Context())
		cancel()
		r.isOf(context.WithoutCancel(ended), h)
		r.unlock(h)
		r.isOf(ended, h) // a function learns from the hold that it has ended
		require.False(r, h.Trusted())
	})
}

func TestTheFunctionOfDoReachesItsFence(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		require.NoError(r, r.mutex("a").Do(r.Context(), func(ctx context.Context) error {
			outer, ok := lock.FromContext(ctx)
			require.True(r, ok)
			require.Equal(r, "a", outer.Name())
			require.NotZero(r, outer.Fence())
			require.True(r, outer.Trusted())
			return r.mutex("b").Do(ctx, func(ctx context.Context) error {
				inner, ok := lock.FromContext(ctx)
				require.True(r, ok)
				require.Equal(r, "b", inner.Name())
				return r.mutex("a").Do(ctx, func(ctx context.Context) error {
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

// A permit has no fence, and must not hide the one of the lock around it.
func TestAPermitHidesNoHold(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		within := func(ctx context.Context, check func(ctx context.Context)) {
			require.NoError(r, r.locks.Semaphore("pool", 3).Do(ctx, 1, func(ctx context.Context) error {
				check(ctx)
				return nil
			}))
			p, err := r.locks.Semaphore("pool", 3).Acquire(ctx, 1)
			require.NoError(r, err)
			check(p.Context())
			require.NoError(r, p.Release(ctx))
		}
		within(r.Context(), r.isOfNone)
		h := r.lock(r.Context(), "a")
		within(h.Context(), func(ctx context.Context) { r.isOf(ctx, h) })
		r.unlock(h)
	})
}

// After WithOwner, a context does not re-enter the locks of its starter, so it has none of their
// holds either.
func TestANewOwnerHasNoHoldOfItsStarter(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		h := r.lock(r.Context(), "a")
		chain := redlatch.WithOwner(h.Context())
		r.isOfNone(chain)
		own := r.lock(chain, "b")
		r.isOfNone(chain)
		r.isOf(own.Context(), own)
		r.unlock(own, h)
	})
}

func TestAHoldThatNoLockMadeIsInNoContext(t *testing.T) {
	_, ok := lock.FromContext(new(lock.Hold).Context())
	require.False(t, ok)
}

// One import is enough for the types that programs name.
func TestTheRootPackageNamesTheTypesOfPrograms(t *testing.T) {
	locks, err := redlatch.New(unused(t))
	require.NoError(t, err)
	service := struct {
		mutex  *redlatch.Mutex
		fair   *redlatch.FairMutex
		pool   *redlatch.Semaphore
		either [2]redlatch.Locker
		hold   *redlatch.Hold
		permit *redlatch.Permit
	}{mutex: locks.Mutex("a"), fair: locks.FairMutex("b"), pool: locks.Semaphore("c", 1)}
	service.either = [2]redlatch.Locker{service.mutex, service.fair}
	require.Equal(t, "a", service.either[0].Name())
	require.Equal(t, "b", service.either[1].Name())
	require.Equal(t, "c", service.pool.Name())
	require.False(t, service.hold.Trusted() || service.permit.Trusted())
}
