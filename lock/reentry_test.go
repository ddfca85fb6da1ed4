package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: a call re-enters a lock if its context descends from a hold of it, and in
// no other case (ADR 11).

// Mutex makes a mutex of the kind.

// Lock waits for a mutex of the kind.

// Unlock releases a hold.

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
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		err := r.Mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			crowd(r.T, func(_ int, work func(context.Context) error) error { return r.Mutex("inner").Do(ctx, work) })
			return nil
		})
		require.NoError(r, err)
	})
}

func TestGoroutinesWithTheContextOfAHoldExcludeEachOther(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		outer := r.Lock(context.Background(), "outer")
		crowd(r.T, func(_ int, work func(context.Context) error) error {
			h, err := r.Mutex("inner").Lock(outer.Context())
			if err != nil {
				return err
			}
			defer r.Unlock(h)
			return work(h.Context())
		})
		r.Unlock(outer)
	})
}

// Both kinds of mutex of one name are one lock, also in the body of a permit.
func TestGoroutinesExcludeEachOtherByAllPrimitives(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		m, f, s := r.Locks.Mutex("inner"), r.Locks.FairMutex("inner"), r.Locks.Semaphore("inner", 20)
		err := r.Mutex("outer").Do(context.Background(), func(ctx context.Context) error {
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
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		err := r.Mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			inside := make(chan struct{}, 20)
			all := make(chan struct{})
			var g errgroup.Group
			for range cap(inside) {
				g.Go(func() error {
					return r.Mutex("outer").Do(ctx, func(context.Context) error {
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
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		a := r.Lock(context.Background(), "a")
		b := r.Lock(a.Context(), "b")
		c := r.Lock(b.Context(), "c")
		again := r.Entered(c.Context(), a)
		middle := r.Entered(again.Context(), b)
		deepest := r.Entered(middle.Context(), c)
		err := r.Mutex("a").Do(deepest.Context(), func(ctx context.Context) error {
			r.Unlock(r.Entered(ctx, c), r.Entered(ctx, b))
			return nil
		})
		require.NoError(r, err)
		r.Unlock(a, c, again, b, deepest, middle)
		r.Unlock(r.Lock(context.Background(), "a"), r.Lock(context.Background(), "b"), r.Lock(context.Background(), "c"))
	})
}

// An outer context has no part in the locks that were taken with it.
func TestTheContextBeforeALockDoesNotReenterIt(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		a := r.Lock(context.Background(), "a")
		b := r.Lock(a.Context(), "b")
		r.Refused(a.Context(), "b")
		r.Refused(context.Background(), "a")
		c := r.Lock(a.Context(), "c")
		r.Refused(b.Context(), "c")
		r.Unlock(r.Entered(b.Context(), a), r.Entered(c.Context(), a))
		r.Unlock(a, b, c)
	})
}

// A context outlives its hold. It re-enters the locks on its path that are still held, and takes
// the others anew.
func TestTheContextOfAReleasedHoldReentersWhatIsStillHeld(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		a := r.Lock(context.Background(), "a")
		b := r.Lock(a.Context(), "b")
		ctx := context.WithoutCancel(b.Context())
		r.Unlock(b)
		r.Unlock(r.Entered(ctx, a))
		anew := r.Lock(ctx, "b")
		require.NotEqual(r, b.ID(), anew.ID())
		r.Refused(ctx, "b")
		r.Unlock(a)
		aNew := r.Lock(anew.Context(), "a")
		r.Unlock(r.Entered(aNew.Context(), anew))
		r.Unlock(aNew, anew)
	})
}

func TestTheOtherKindOfMutexReentersAlongThePath(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		a := r.Lock(context.Background(), "a")
		b := r.Lock(a.Context(), "b")
		for _, other := range []redlatch.Locker{r.Locks.Mutex("a"), r.Locks.FairMutex("a")} {
			h, err := other.Lock(b.Context())
			require.NoError(r, err)
			require.Equal(r, a.ID(), h.ID())
			r.Unlock(h)
		}
		r.Unlock(b, a)
	})
}

// This is the price of one owner for a whole chain.
func TestGoroutinesOfOneOwnerDoNotExcludeEachOther(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		chain := redlatch.WithOwner(context.Background())
		first := r.Lock(chain, "a")
		inner := r.Lock(first.Context(), "b")
		for i, ctx := range []context.Context{chain, first.Context(), inner.Context()} {
			require.Equal(r, first.ID(), r.Entered(ctx, first).ID(), fmt.Sprint(i))
			require.Equal(r, inner.ID(), r.Entered(ctx, inner).ID(), fmt.Sprint(i))
		}
		r.Refused(redlatch.WithOwner(inner.Context()), "a")
		r.Refused(redlatch.WithOwner(inner.Context()), "b")
	})
}
