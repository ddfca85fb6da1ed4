package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: a context that Bind makes ends when the hold does, or when its parent
// does, whichever is first, and says which it was.

// binder is a hold or a permit.
type binder interface {
	Bind(parent context.Context) (context.Context, context.CancelFunc)
	Context() context.Context
	Trusted() bool
}

// onBinders runs f for a hold and for a permit, each in a bubble of its own.
func onBinders(t *testing.T, f func(s *stage.Scene, b binder, end func(context.Context) error)) {
	t.Helper()
	for name, acquire := range map[string]func(s *stage.Scene) (binder, func(context.Context) error){
		"hold": func(s *stage.Scene) (binder, func(context.Context) error) {
			h := s.Lock(context.Background())
			return h, h.Unlock
		},
		"permit": func(s *stage.Scene) (binder, func(context.Context) error) {
			p, err := s.Locks.Semaphore("pool", 3).Acquire(context.Background(), 1)
			require.NoError(s.T, err)
			return p, p.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				b, end := acquire(s)
				f(s, b, end)
			})
		})
	}
}

var errParent = errors.New("the caller gave up")

func TestABoundContextEndsWithItsHold(t *testing.T) {
	onBinders(t, func(s *stage.Scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.T.Context())
		defer cancel()
		require.NoError(s.T, ctx.Err())
		require.NoError(s.T, end(ctx), "its own end does not end the release")
		require.Equal(s.T, context.Canceled, ctx.Err(), "ended when the release returns")
		require.Equal(s.T, context.Cause(b.Context()), context.Cause(ctx))

		late, cancel := b.Bind(s.T.Context())
		defer cancel()
		require.Equal(s.T, context.Canceled, late.Err(), "bound to a hold that has ended")
		require.Equal(s.T, context.Cause(b.Context()), context.Cause(late))
	})
}

func TestABoundContextSaysThatTheLockWasLost(t *testing.T) {
	onBinders(t, func(s *stage.Scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.T.Context())
		defer cancel()
		require.NoError(s.T, s.Direct.FlushAll(s.T.Context()).Err())
		<-ctx.Done()
		require.ErrorIs(s.T, context.Cause(ctx), redlatch.ErrLost)
		require.ErrorIs(s.T, end(s.T.Context()), redlatch.ErrLost)
	})
}

func TestABoundContextEndsWhenTheClientCloses(t *testing.T) {
	onBinders(t, func(s *stage.Scene, b binder, _ func(context.Context) error) {
		ctx, cancel := b.Bind(s.T.Context())
		defer cancel()
		require.NoError(s.T, s.Locks.Close(s.T.Context()))
		require.ErrorIs(s.T, context.Cause(ctx), redlatch.ErrClosed)
	})
}

func TestABoundContextEndsWithItsParent(t *testing.T) {
	onBinders(t, func(s *stage.Scene, b binder, end func(context.Context) error) {
		type key struct{}
		deadline := time.Now().Add(time.Hour)
		parent, stop := context.WithDeadline(context.WithValue(s.T.Context(), key{}, "kept"), deadline)
		defer stop()
		parent, give := context.WithCancelCause(parent)
		ctx, cancel := b.Bind(parent)
		defer cancel()
		require.Equal(s.T, "kept", ctx.Value(key{}))
		until, has := ctx.Deadline()
		require.True(s.T, has)
		require.Equal(s.T, deadline, until)
		give(errParent)
		require.Error(s.T, ctx.Err(), "no goroutine has to run first")
		require.Equal(s.T, errParent, context.Cause(ctx))
		require.True(s.T, b.Trusted(), "the hold goes on")
		require.NoError(s.T, b.Context().Err())
		require.NoError(s.T, end(s.T.Context()))
		require.Equal(s.T, errParent, context.Cause(ctx), "the first end counts")
	})
}

func TestCancelEndsABoundContextAndNotItsHold(t *testing.T) {
	onBinders(t, func(s *stage.Scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.T.Context())
		other, cancelOther := b.Bind(s.T.Context())
		defer cancelOther()
		cancel()
		cancel()
		require.Equal(s.T, context.Canceled, context.Cause(ctx))
		require.NoError(s.T, other.Err())
		require.NoError(s.T, b.Context().Err())
		require.NoError(s.T, end(s.T.Context()))
		require.Error(s.T, other.Err())
	})
}

// A program holds a lock, and a request that holds another one works under both. It may lock both
// names again.
func TestABoundContextReentersTheLocksOfBoth(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		around := r.Lock(r.Context(), "around")
		leader := r.Lock(around.Context(), "leader")
		outer := r.Lock(r.Context(), "order")
		request := r.Lock(outer.Context(), "item")
		ctx, cancel := leader.Bind(request.Context())
		defer cancel()
		r.IsOf(ctx, leader)
		for _, h := range []*lock.Hold{leader, around, request, outer} {
			again := r.Entered(ctx, h)
			r.Entered(again.Context(), leader)
		}
		below := r.Lock(ctx, "below")
		deeper := r.Lock(below.Context(), "deeper")
		r.Entered(deeper.Context(), leader)
		r.Entered(deeper.Context(), outer)
		r.Refused(leader.Context(), "order")
		r.Refused(request.Context(), "leader")
		r.Refused(leader.Context(), "below")

		// Goroutines that share the context exclude each other from all other locks.
		r.Refused(ctx, "below")

		// An Unlock by a context that ends because of another hold on its path goes on.
		r.Unlock(leader)
		require.NoError(r, below.Unlock(ctx))
	})
}

func TestABoundContextOfACallKeepsOneOwner(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		h := r.Lock(r.Context(), "a")
		ctx, cancel := h.Bind(h.Context())
		defer cancel()
		r.Entered(ctx, h)
		chain := redlatch.WithOwner(r.Context())
		own := r.Lock(chain, "b")
		bound, cancel := own.Bind(chain)
		defer cancel()
		inner := r.Lock(bound, "c")
		r.Entered(chain, inner)

		// With the hold of another owner, what is locked belongs to the context.
		both, cancel := h.Bind(chain)
		defer cancel()
		r.Entered(both, h)
		r.Entered(both, own)
		mixed := r.Lock(both, "d")
		r.Entered(mixed.Context(), own)
		r.Refused(chain, "d")
	})
}

func TestANilHoldBindsAContextThatHasEnded(t *testing.T) {
	for name, b := range map[string]binder{
		"nil hold": (*lock.Hold)(nil), "zero hold": new(lock.Hold),
		"nil permit": (*semaphore.Permit)(nil), "zero permit": new(semaphore.Permit),
	} {
		ctx, cancel := b.Bind(t.Context())
		cancel()
		require.Equal(t, context.Canceled, ctx.Err(), name)
		require.ErrorIs(t, context.Cause(ctx), redlatch.ErrNotHeld, name)
		require.PanicsWithValue(t, "redlatch: Bind: the context must not be nil", func() {
			var none context.Context
			_, _ = b.Bind(none)
		}, name)
	}
}

//go:noinline
func bound(t testing.TB, m *reentrant.Mutex) context.Context {
	ctx, cancel := stage.MustLock(t, context.Background(), m).Bind(context.Background())
	_ = cancel // ended by the loss at the latest
	return ctx
}

func TestHoldWithABoundContextIsNoGarbage(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	name := redistest.Name(t)
	ctx := bound(t, g.locks.Mutex(name, forever))
	g.collector()
	require.NoError(t, ctx.Err())
	runtime.KeepAlive(ctx)
	ctx = nil //nolint:ineffassign,wastedassign // the end of its life
	g.log.Collected(t, name)
}
