package redlatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a call re-enters a lock if its context descends from a hold of it, and in
// no other case (ADR 11).

// reentry is a client in a bubble, with both kinds of mutex.
type reentry struct {
	*testing.T
	locks *redlatch.Client
	log   *logbook
	kind  string
}

// onBothKinds runs f for each kind of mutex, in virtual time.
func onBothKinds(t *testing.T, f func(r *reentry)) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair mutex"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logbook{}
				f(&reentry{t, locksOn(t, redistest.Bubble(t).Client(), redlatch.WithLogger(slog.New(log))), log, kind})
			})
		})
	}
}

func (r *reentry) mutex(name string) redlatch.Locker {
	if r.kind == "mutex" {
		return r.locks.Mutex(name)
	}
	return r.locks.FairMutex(name)
}

func (r *reentry) lock(ctx context.Context, name string) *lock.Hold {
	r.Helper()
	h, err := r.mutex(name).Lock(ctx)
	require.NoError(r, err)
	return h
}

func (r *reentry) unlock(holds ...*lock.Hold) {
	r.Helper()
	for _, h := range holds {
		require.NoError(r, h.Unlock(context.Background()))
	}
}

// refused asserts that ctx cannot lock name, because somebody else holds it.
func (r *reentry) refused(ctx context.Context, name string) {
	r.Helper()
	_, err := r.mutex(name).TryLock(ctx)
	require.ErrorIs(r, err, redlatch.ErrNotAcquired)
}

// entered asserts that ctx re-enters the lock of h.
func (r *reentry) entered(ctx context.Context, h *lock.Hold) *lock.Hold {
	r.Helper()
	inner, err := r.mutex(h.Name()).TryLock(ctx)
	require.NoError(r, err)
	require.Equal(r, h.ID(), inner.ID())
	return inner
}

// crowd runs work in twenty goroutines at once. work reads the counter, takes time, and writes it.
// It counts up to twenty only if it never runs twice at the same time.
func crowd(t *testing.T, in func(i int, work func(context.Context) error) error) {
	t.Helper()
	const goroutines = 20
	var counter, inside, most atomic.Int64
	work := func(context.Context) error {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		n := counter.Load()
		time.Sleep(time.Millisecond)
		counter.Store(n + 1)
		return nil
	}
	var g errgroup.Group
	for i := range goroutines {
		g.Go(func() error { return in(i, work) })
	}
	require.NoError(t, g.Wait())
	require.EqualValues(t, goroutines, counter.Load())
	require.EqualValues(t, 1, most.Load(), "at a time")
}

func TestGoroutinesInABodyExcludeEachOther(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		err := r.mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			crowd(r.T, func(_ int, work func(context.Context) error) error { return r.mutex("inner").Do(ctx, work) })
			return nil
		})
		require.NoError(r, err)
	})
}

func TestGoroutinesWithTheContextOfAHoldExcludeEachOther(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		outer := r.lock(context.Background(), "outer")
		crowd(r.T, func(_ int, work func(context.Context) error) error {
			h, err := r.mutex("inner").Lock(outer.Context())
			if err != nil {
				return err
			}
			defer r.unlock(h)
			return work(h.Context())
		})
		r.unlock(outer)
	})
}

// Both kinds of mutex of one name are one lock, also in the body of a permit.
func TestGoroutinesExcludeEachOtherByAllPrimitives(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		m, f, s := r.locks.Mutex("inner"), r.locks.FairMutex("inner"), r.locks.Semaphore("inner", 20)
		err := r.mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			crowd(r.T, func(i int, work func(context.Context) error) error {
				switch i % 3 {
				case 0:
					return m.Do(ctx, work)
				case 1:
					return f.Do(ctx, work)
				}
				return s.Do(ctx, 1, func(ctx context.Context) error { return m.Do(ctx, work) })
			})
			return nil
		})
		require.NoError(r, err)
	})
}

func TestGoroutinesMayAllReenterTheLockOfTheirParent(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		err := r.mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			inside := make(chan struct{}, 20)
			all := make(chan struct{})
			var g errgroup.Group
			for range cap(inside) {
				g.Go(func() error {
					return r.mutex("outer").Do(ctx, func(context.Context) error {
						inside <- struct{}{}
						<-all // nobody leaves before all are inside
						return nil
					})
				})
			}
			for range cap(inside) {
				<-inside
			}
			close(all)
			return g.Wait()
		})
		require.NoError(r, err)
	})
}

// If a nested call re-enters an outer lock, it still has the locks in between.
func TestReentryForgetsNoLockInBetween(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		a := r.lock(context.Background(), "a")
		b := r.lock(a.Context(), "b")
		c := r.lock(b.Context(), "c")
		again := r.entered(c.Context(), a)
		middle := r.entered(again.Context(), b)
		deepest := r.entered(middle.Context(), c)
		err := r.mutex("a").Do(deepest.Context(), func(ctx context.Context) error {
			r.unlock(r.entered(ctx, c), r.entered(ctx, b))
			return nil
		})
		require.NoError(r, err)
		r.unlock(a, c, again, b, deepest, middle)
		r.unlock(r.lock(context.Background(), "a"), r.lock(context.Background(), "b"), r.lock(context.Background(), "c"))
	})
}

// An outer context has no part in the locks that were taken with it.
func TestTheContextBeforeALockDoesNotReenterIt(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		a := r.lock(context.Background(), "a")
		b := r.lock(a.Context(), "b")
		r.refused(a.Context(), "b")
		r.refused(context.Background(), "a")
		c := r.lock(a.Context(), "c")
		r.refused(b.Context(), "c")
		r.unlock(r.entered(b.Context(), a), r.entered(c.Context(), a))
		r.unlock(a, b, c)
	})
}

// A context outlives its hold. It re-enters the locks on its path that are still held, and takes
// the others anew.
func TestTheContextOfAReleasedHoldReentersWhatIsStillHeld(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		a := r.lock(context.Background(), "a")
		b := r.lock(a.Context(), "b")
		ctx := context.WithoutCancel(b.Context())
		r.unlock(b)
		r.unlock(r.entered(ctx, a))
		anew := r.lock(ctx, "b")
		require.NotEqual(r, b.ID(), anew.ID())
		r.refused(ctx, "b")
		r.unlock(a)
		aNew := r.lock(anew.Context(), "a")
		r.unlock(r.entered(aNew.Context(), anew))
		r.unlock(aNew, anew)
	})
}

func TestTheOtherKindOfMutexReentersAlongThePath(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		a := r.lock(context.Background(), "a")
		b := r.lock(a.Context(), "b")
		for _, other := range []redlatch.Locker{r.locks.Mutex("a"), r.locks.FairMutex("a")} {
			h, err := other.Lock(b.Context())
			require.NoError(r, err)
			require.Equal(r, a.ID(), h.ID())
			r.unlock(h)
		}
		r.unlock(b, a)
	})
}

// This is the price of one owner for a whole chain.
func TestGoroutinesOfOneOwnerDoNotExcludeEachOther(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		chain := redlatch.WithOwner(context.Background())
		first := r.lock(chain, "a")
		inner := r.lock(first.Context(), "b")
		for i, ctx := range []context.Context{chain, first.Context(), inner.Context()} {
			require.Equal(r, first.ID(), r.entered(ctx, first).ID(), fmt.Sprint(i))
			require.Equal(r, inner.ID(), r.entered(ctx, inner).ID(), fmt.Sprint(i))
		}
		r.refused(redlatch.WithOwner(inner.Context()), "a")
		r.refused(redlatch.WithOwner(inner.Context()), "b")
	})
}
