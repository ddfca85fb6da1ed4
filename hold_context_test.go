package redlatch_test

import (
	"context"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
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

// finds asserts that a mutex of each kind finds exactly h in ctx; nil: none.
func (r *reentry) finds(ctx context.Context, name string, h *lock.Hold) {
	r.Helper()
	for kind, from := range map[string]func(context.Context) (*lock.Hold, bool){
		"plain": r.locks.Mutex(name).HoldFrom, "fair": r.locks.FairMutex(name).HoldFrom,
	} {
		found, ok := from(ctx)
		require.Equal(r, h != nil, ok, kind)
		require.Same(r, h, found, kind)
	}
}

func TestANestedLockFindsItsOwnHold(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		r.finds(r.Context(), "a", nil)
		outer := r.lock(r.Context(), "a")
		inner := r.lock(outer.Context(), "b")
		type key struct{}
		ctx, cancel := inner.Bind(context.WithValue(r.Context(), key{}, "unrelated"))
		defer cancel()
		for _, ctx := range []context.Context{inner.Context(), ctx, context.WithoutCancel(ctx)} {
			r.finds(ctx, "b", inner)
			r.isOf(ctx, inner)
			r.finds(ctx, "c", nil)
		}
		r.finds(inner.Context(), "a", outer)
		r.finds(outer.Context(), "b", nil)

		again := r.lock(inner.Context(), "a")
		r.finds(again.Context(), "a", again)
		r.finds(again.Context(), "b", inner)
		joined, cancel := outer.Bind(again.Context())
		defer cancel()
		r.finds(joined, "a", outer)
		r.finds(joined, "b", inner)
		r.unlock(again, inner, outer)
		r.finds(inner.Context(), "a", outer) // it says itself that it has ended
	})
}

func TestALockFindsNoHoldThatItsContextDoesNotReenter(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		h := r.lock(r.Context(), "a")
		chain := redlatch.WithOwner(h.Context())
		r.finds(chain, "a", nil)
		own := r.lock(chain, "b")
		r.finds(own.Context(), "a", nil)
		r.finds(own.Context(), "b", own)
		joined, cancel := h.Bind(own.Context())
		defer cancel()
		r.finds(joined, "a", h)
		r.unlock(own, h)
	})
}

// A semaphore may have the name of a mutex. A permit around a lock of that name, or inside, is no hold of it.
func TestALockFindsNoPermitOfItsName(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		p, err := r.locks.Semaphore("a", 1).Acquire(r.Context(), 1)
		require.NoError(r, err)
		r.finds(p.Context(), "a", nil)
		h := r.lock(p.Context(), "a")
		r.finds(h.Context(), "a", h)
		r.unlock(h)
		require.NoError(r, p.Release(r.Context()))
		h = r.lock(r.Context(), "a")
		p, err = r.locks.Semaphore("a", 1).Acquire(h.Context(), 1)
		require.NoError(r, err)
		r.finds(p.Context(), "a", h)
		require.NoError(r, p.Release(r.Context()))
		r.unlock(h)
	})
}

// Two clients may have two servers, and their locks of one name are two locks.
func TestAClientFindsNoHoldOfAnother(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		other := locksOn(r.T, redistest.Bubble(r.T).Client())
		h := r.lock(r.Context(), "a")
		_, ok := other.Mutex("a").HoldFrom(h.Context())
		require.False(r, ok)
		ofOther, err := other.Mutex("a").Lock(h.Context())
		require.NoError(r, err)
		r.finds(ofOther.Context(), "a", h)
		found, ok := other.Mutex("a").HoldFrom(ofOther.Context())
		require.True(r, ok)
		require.Same(r, ofOther, found)
		r.unlock(ofOther)
		_, ok = r.locks.Mutex("bad\nname").HoldFrom(h.Context())
		require.False(r, ok)
		var none context.Context
		_, ok = r.locks.Mutex("a").HoldFrom(none)
		require.False(r, ok)
		r.unlock(h)
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

// A semaphore finds the innermost permit of its own, whatever is between.
func TestASemaphoreFindsItsPermit(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		pool, other := r.locks.Semaphore("a", 9), r.locks.Semaphore("b", 9)
		finds := func(ctx context.Context, s *redlatch.Semaphore, id string, units int) {
			p, ok := s.PermitFrom(ctx)
			require.Equal(r, id != "", ok)
			require.Equal(r, id, p.ID())
			require.Equal(r, units, p.Units())
		}
		finds(r.Context(), pool, "", 0)
		h := r.lock(r.Context(), "a") // a mutex of that name
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
				r.finds(ctx, "a", h)
				return nil
			})
		}))
		bound, cancel := p.Bind(r.Context())
		defer cancel()
		finds(bound, pool, p.ID(), 3)

		another := locksOn(r.T, redistest.Bubble(r.T).Client())
		finds(bound, another.Semaphore("a", 9), "", 0)
		finds(bound, r.locks.Semaphore("bad\nname", 9), "", 0)
		var none context.Context
		finds(none, pool, "", 0)
		require.NoError(r, p.Release(r.Context()))
		found, ok := pool.PermitFrom(bound) // it says itself that it has ended
		require.True(r, ok)
		require.False(r, found.Trusted())
		r.unlock(h)
	})
}

// Do leaves a permit alone that its function has released with ReleaseAfter.
func TestAFunctionKeepsTheUnitsOfItsPermit(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		pool := r.locks.Semaphore("a", 3)
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

// go doc shows no methods of an alias, so its comment names them.
func TestTheCommentOfAnAliasNamesItsMethods(t *testing.T) {
	t.Parallel()
	source := readAll(t, "types.go")
	for name, alias := range map[string]reflect.Type{
		"Mutex": reflect.TypeFor[*redlatch.Mutex](), "FairMutex": reflect.TypeFor[*redlatch.FairMutex](),
		"Semaphore": reflect.TypeFor[*redlatch.Semaphore](), "Hold": reflect.TypeFor[*redlatch.Hold](),
		"Permit": reflect.TypeFor[*redlatch.Permit](), "Locker": reflect.TypeFor[redlatch.Locker](),
		"Observer": reflect.TypeFor[redlatch.Observer](),
	} {
		comment := regexp.MustCompile(`(?m)((?:^\t//.*\n)+)\t` + name + ` = `).FindStringSubmatch(source)
		require.Len(t, comment, 2, name)
		require.NotZero(t, alias.NumMethod(), name)
		for i := range alias.NumMethod() {
			require.Regexp(t, `\b`+alias.Method(i).Name+`\b`, comment[1], name)
		}
	}
}
