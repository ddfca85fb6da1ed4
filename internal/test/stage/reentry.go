package stage

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// Reentry is a client in a bubble, with both kinds of mutex.
type Reentry struct {
	*testing.T
	Locks   *redlatch.Client
	Logbook *Logbook
	kind    string
}

// OnBothKinds runs f for each kind of mutex, in virtual time.
func OnBothKinds(t *testing.T, f func(r *Reentry)) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair mutex"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &Logbook{}
				f(&Reentry{t, LocksOn(t, redistest.Bubble(t).Client(), redlatch.WithLogger(slog.New(log))), log, kind})
			})
		})
	}
}

// Mutex makes a mutex of the kind.
func (r *Reentry) Mutex(name string) redlatch.Locker {
	if r.kind == "mutex" {
		return r.Locks.Mutex(name)
	}
	return r.Locks.FairMutex(name)
}

// Lock waits for a mutex of the kind.
func (r *Reentry) Lock(ctx context.Context, name string) *lock.Hold {
	r.Helper()
	h, err := r.Mutex(name).Lock(ctx)
	require.NoError(r, err)
	return h
}

// Unlock releases a hold.
func (r *Reentry) Unlock(holds ...*lock.Hold) {
	r.Helper()
	for _, h := range holds {
		require.NoError(r, h.Unlock(context.Background()))
	}
}

// Refused asserts that ctx cannot lock name, because somebody else holds it.
func (r *Reentry) Refused(ctx context.Context, name string) {
	r.Helper()
	_, err := r.Mutex(name).TryLock(ctx)
	require.ErrorIs(r, err, redlatch.ErrNotAcquired)
}

// Entered asserts that ctx re-enters the lock of h.
func (r *Reentry) Entered(ctx context.Context, h *lock.Hold) *lock.Hold {
	r.Helper()
	inner, err := r.Mutex(h.Name()).TryLock(ctx)
	require.NoError(r, err)
	require.Equal(r, h.ID(), inner.ID())
	return inner
}

// IsOf asserts that the hold of ctx is h, the very handle.
func (r *Reentry) IsOf(ctx context.Context, h *lock.Hold) {
	r.Helper()
	found, ok := lock.FromContext(ctx)
	require.True(r, ok)
	require.Same(r, h, found)
	found, ok = redlatch.HoldFromContext(ctx)
	require.True(r, ok)
	require.Same(r, h, found)
}

// IsOfNone asserts that ctx has no hold.
func (r *Reentry) IsOfNone(ctx context.Context) {
	r.Helper()
	h, ok := lock.FromContext(ctx)
	require.False(r, ok)
	require.Nil(r, h)
}

// Finds asserts that a mutex of each kind finds exactly h in ctx; nil: none.
func (r *Reentry) Finds(ctx context.Context, name string, h *lock.Hold) {
	r.Helper()
	for kind, from := range map[string]func(context.Context) (*lock.Hold, bool){
		"plain": r.Locks.Mutex(name).HoldFrom, "fair": r.Locks.FairMutex(name).HoldFrom,
	} {
		found, ok := from(ctx)
		require.Equal(r, h != nil, ok, kind)
		require.Same(r, h, found, kind)
	}
}
