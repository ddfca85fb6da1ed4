package redlatchtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// held is a lock or a permit that a test has.
type held struct {
	lost    <-chan struct{}
	ctx     context.Context //nolint:containedctx // it is what the test looks at
	release func(context.Context) error
	trusted func() bool
}

// kind is one of the primitives, with the same calls for all.
type kind struct {
	name      string
	lock, try func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error)
	elsewhere func(s *redlatchtest.Server) (release func())
}

var kinds = []kind{
	{
		"mutex",
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			h, err := c.Mutex("door", o...).Lock(ctx)
			return held{h.Lost(), h.Context(), h.Unlock, h.Trusted}, err
		},
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			h, err := c.Mutex("door", o...).TryLock(ctx)
			return held{h.Lost(), h.Context(), h.Unlock, h.Trusted}, err
		},
		func(s *redlatchtest.Server) func() { return s.HoldElsewhere("door") },
	},
	{
		"fair mutex",
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			h, err := c.FairMutex("door", o...).Lock(ctx)
			return held{h.Lost(), h.Context(), h.Unlock, h.Trusted}, err
		},
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			h, err := c.FairMutex("door", o...).TryLock(ctx)
			return held{h.Lost(), h.Context(), h.Unlock, h.Trusted}, err
		},
		func(s *redlatchtest.Server) func() { return s.HoldElsewhere("door") },
	},
	{
		"semaphore",
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			p, err := c.Semaphore("door", 3, o...).Acquire(ctx, 2)
			return held{p.Lost(), p.Context(), p.Release, p.Trusted}, err
		},
		func(ctx context.Context, c *redlatch.Client, o ...redlatch.LockOption) (held, error) {
			p, err := c.Semaphore("door", 3, o...).TryAcquire(ctx, 2)
			return held{p.Lost(), p.Context(), p.Release, p.Trusted}, err
		},
		func(s *redlatchtest.Server) func() { return s.AcquireElsewhere("door", 3, 2) },
	},
}

func (k kind) mustLock(t *testing.T, c *redlatch.Client, o ...redlatch.LockOption) held {
	t.Helper()
	h, err := k.lock(t.Context(), c, o...)
	require.NoError(t, err)
	return h
}

func (k kind) requireFree(t *testing.T, c *redlatch.Client) {
	t.Helper()
	h, err := k.try(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, h.release(t.Context()))
}

func (k kind) requireTaken(t *testing.T, c *redlatch.Client) {
	t.Helper()
	_, err := k.try(t.Context(), c)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}

// requireLost requires that the holder has been notified already.
func requireLost(t *testing.T, h held) {
	t.Helper()
	require.ErrorIs(t, context.Cause(h.ctx), redlatch.ErrLost)
	select {
	case <-h.lost:
	default:
		t.Fatal("Lost is open")
	}
	require.False(t, h.trusted())
	require.ErrorIs(t, h.release(context.Background()), redlatch.ErrLost)
}

func requireHeld(t *testing.T, h held) {
	t.Helper()
	require.NoError(t, h.ctx.Err())
	require.True(t, h.trusted())
	require.NoError(t, h.release(t.Context()))
}

// each runs a test for each primitive, inside a bubble and outside of one.
func each(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T) { test(t, k) })
		})
	}
}

// everywhere runs a test inside a bubble and outside of one.
func everywhere(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
	t.Run("real time", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// soon ends a wait that a test expects to end earlier.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
