package redlatch_test

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
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: a context that Bind makes ends when the hold does, or when its parent does,
// whichever is first, and says which it was.

// binder is a hold or a permit.
type binder interface {
	Bind(parent context.Context) (context.Context, context.CancelFunc)
	Context() context.Context
	Trusted() bool
}

// onBinders runs f for a hold and for a permit, each in a bubble of its own.
func onBinders(t *testing.T, f func(s *scene, b binder, end func(context.Context) error)) {
	t.Helper()
	for name, acquire := range map[string]func(s *scene) (binder, func(context.Context) error){
		"hold": func(s *scene) (binder, func(context.Context) error) {
			h := s.lock(context.Background())
			return h, h.Unlock
		},
		"permit": func(s *scene) (binder, func(context.Context) error) {
			p, err := s.locks.Semaphore("pool", 3).Acquire(context.Background(), 1)
			require.NoError(s.t, err)
			return p, p.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				b, end := acquire(s)
				f(s, b, end)
			})
		})
	}
}

var errParent = errors.New("the caller gave up")

func TestABoundContextEndsWithItsHold(t *testing.T) {
	onBinders(t, func(s *scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.t.Context())
		defer cancel()
		require.NoError(s.t, ctx.Err())
		require.NoError(s.t, end(ctx), "its own end does not end the release")
		require.Equal(s.t, context.Canceled, ctx.Err(), "ended when the release returns")
		require.Equal(s.t, context.Cause(b.Context()), context.Cause(ctx))

		late, cancel := b.Bind(s.t.Context())
		defer cancel()
		require.Equal(s.t, context.Canceled, late.Err(), "bound to a hold that has ended")
		require.Equal(s.t, context.Cause(b.Context()), context.Cause(late))
	})
}

func TestABoundContextSaysThatTheLockWasLost(t *testing.T) {
	onBinders(t, func(s *scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.t.Context())
		defer cancel()
		require.NoError(s.t, s.direct.FlushAll(s.t.Context()).Err())
		<-ctx.Done()
		require.ErrorIs(s.t, context.Cause(ctx), redlatch.ErrLost)
		require.ErrorIs(s.t, end(s.t.Context()), redlatch.ErrLost)
	})
}

func TestABoundContextEndsWhenTheClientCloses(t *testing.T) {
	onBinders(t, func(s *scene, b binder, _ func(context.Context) error) {
		ctx, cancel := b.Bind(s.t.Context())
		defer cancel()
		require.NoError(s.t, s.locks.Close(s.t.Context()))
		require.ErrorIs(s.t, context.Cause(ctx), redlatch.ErrClosed)
	})
}

func TestABoundContextEndsWithItsParent(t *testing.T) {
	onBinders(t, func(s *scene, b binder, end func(context.Context) error) {
		type key struct{}
		deadline := time.Now().Add(time.Hour)
		parent, stop := context.WithDeadline(context.WithValue(s.t.Context(), key{}, "kept"), deadline)
		defer stop()
		parent, give := context.WithCancelCause(parent)
		ctx, cancel := b.Bind(parent)
		defer cancel()
		require.Equal(s.t, "kept", ctx.Value(key{}))
		until, has := ctx.Deadline()
		require.True(s.t, has)
		require.Equal(s.t, deadline, until)
		give(errParent)
		require.Error(s.t, ctx.Err(), "no goroutine has to run first")
		require.Equal(s.t, errParent, context.Cause(ctx))
		require.True(s.t, b.Trusted(), "the hold goes on")
		require.NoError(s.t, b.Context().Err())
		require.NoError(s.t, end(s.t.Context()))
		require.Equal(s.t, errParent, context.Cause(ctx), "the first end counts")
	})
}

func TestCancelEndsABoundContextAndNotItsHold(t *testing.T) {
	onBinders(t, func(s *scene, b binder, end func(context.Context) error) {
		ctx, cancel := b.Bind(s.t.Context())
		other, cancelOther := b.Bind(s.t.Context())
		defer cancelOther()
		cancel()
		cancel()
		require.Equal(s.t, context.Canceled, context.Cause(ctx))
		require.NoError(s.t, other.Err())
		require.NoError(s.t, b.Context().Err())
		require.NoError(s.t, end(s.t.Context()))
		require.Error(s.t, other.Err())
	})
}

// A program holds a lock, and a request that holds another one works under both. It may lock both
// names again.
func TestABoundContextReentersTheLocksOfBoth(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		around := r.lock(r.Context(), "around")
		leader := r.lock(around.Context(), "leader")
		outer := r.lock(r.Context(), "order")
		request := r.lock(outer.Context(), "item")
		ctx, cancel := leader.Bind(request.Context())
		defer cancel()
		r.isOf(ctx, leader)
		for _, h := range []*lock.Hold{leader, around, request, outer} {
			again := r.entered(ctx, h)
			r.entered(again.Context(), leader)
		}
		below := r.lock(ctx, "below")
		deeper := r.lock(below.Context(), "deeper")
		r.entered(deeper.Context(), leader)
		r.entered(deeper.Context(), outer)
		r.refused(leader.Context(), "order")
		r.refused(request.Context(), "leader")
		r.refused(leader.Context(), "below")

		// Goroutines that share the context exclude each other from all other locks.
		r.refused(ctx, "below")

		// An Unlock by a context that ends because of another hold on its path goes on.
		r.unlock(leader)
		require.NoError(r, below.Unlock(ctx))
	})
}

func TestABoundContextOfACallKeepsOneOwner(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		h := r.lock(r.Context(), "a")
		ctx, cancel := h.Bind(h.Context())
		defer cancel()
		r.entered(ctx, h)
		chain := redlatch.WithOwner(r.Context())
		own := r.lock(chain, "b")
		bound, cancel := own.Bind(chain)
		defer cancel()
		inner := r.lock(bound, "c")
		r.entered(chain, inner)

		// With the hold of another owner, what is locked belongs to the context.
		both, cancel := h.Bind(chain)
		defer cancel()
		r.entered(both, h)
		r.entered(both, own)
		mixed := r.lock(both, "d")
		r.entered(mixed.Context(), own)
		r.refused(chain, "d")
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
	ctx, cancel := mustLock(t, context.Background(), m).Bind(context.Background())
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
	g.log.collected(t, name)
}
