package locktest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var unlocking = []property{
	{"Unlock with a cancelled context unlocks", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(f, h.Unlock(ctx))
		f.process(patient).free()
	}},
	{"Unlock with a deadline in the past unlocks", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
		defer cancel()
		require.NoError(f, h.Unlock(ctx))
		f.process(patient).free()
	}},
	{"Unlock with the context of the hold unlocks", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		require.NoError(f, h.Unlock(h.Context()))
		f.process(patient).free()
	}},
	{"Unlock from another goroutine unlocks", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		done := make(chan error)
		go func() { done <- h.Unlock(context.Background()) }()
		require.NoError(f, receive(f, done, "Unlock returns"))
		f.process(patient).free()
	}},
	{"Unlock ends the context of the hold, and that is no loss", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		ctx := h.Context()
		p.unlock(h)
		receive(f, ctx.Done(), "the context ends")
		require.NotErrorIs(f, context.Cause(ctx), lockerr.ErrLost)
		require.ErrorContains(f, context.Cause(ctx), "released")
		require.ErrorIs(f, ctx.Err(), context.Canceled)
		require.Error(f, h.Context().Err(), "a context asked for later has ended too")
		pending(f, h.Lost(), "Lost is closed")
	}},
	{"what is unlocked is not trusted, whatever the lease", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		require.True(f, h.Trusted())
		require.True(f, h.TrustedUntil().After(time.Now()))
		p.unlock(h)
		require.False(f, h.Trusted())
		require.Zero(f, h.TrustedUntil())
	}},
	{"a second Unlock says not held and touches nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		p.unlock(h)
		require.Equal(f, []error{lockerr.ErrNotHeld}, kinds(h.Unlock(context.Background())))
		next := q.lock()
		f.unchanged(func() {
			require.Equal(f, []error{lockerr.ErrNotHeld}, kinds(h.Unlock(context.Background())))
		})
		q.unlock(next)
	}},
	{"of many Unlocks at once one unlocks", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		var all sync.WaitGroup
		var unlocked, notHeld atomic.Int32
		for range 8 {
			all.Go(func() {
				switch err := h.Unlock(context.Background()); {
				case err == nil:
					unlocked.Add(1)
				case kinds(err)[0] == lockerr.ErrNotHeld:
					notHeld.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(f, 1, unlocked.Load())
		require.EqualValues(f, 7, notHeld.Load())
		f.process(patient).free()
	}},
	{"Unlock after another took over says lost and touches nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		f.wipe()
		next := q.lock()
		f.unchanged(func() { f.lost(h.Unlock(context.Background()), h) })
		pending(f, next.Lost(), "the next holder loses it")
		q.unlock(next)
	}},
	{"Unlock after another of the same client took over touches nothing", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		f.wipe()
		next, err := p.tryLock(context.Background())
		require.NoError(f, err)
		f.unchanged(func() { f.lost(h.Unlock(context.Background()), h) })
		f.process(patient).refused()
		p.unlock(next)
	}},
}

// lost asserts the error of a hold that was lost.
func (f *fixture) lost(err error, h Hold) {
	f.Helper()
	require.Equal(f, []error{lockerr.ErrLost}, kinds(err), "%v", err)
	var facts *lockerr.LostError
	require.ErrorAs(f, err, &facts)
	require.Equal(f, h.ID(), facts.ID)
	require.Contains(f, facts.Name, f.name)
	require.NotEmpty(f, facts.Reason)
	require.Positive(f, facts.Lease)
}
