package locktest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

// reentry has the promises for an owner that takes the lock again.
func reentry(s Subject) []property {
	if !s.Reentrant {
		return []property{{"an owner that has it is refused like anybody", func(f *fixture) {
			p := f.process(patient)
			h := p.lockWith(newChain())
			_, err := p.tryLock(h.Context())
			require.Equal(f, []error{lockerr.ErrNotAcquired}, kinds(err))
			p.unlock(h)
			p.free()
		}}}
	}
	return reentrant
}

var reentrant = []property{
	{"an owner re-enters under the same fence", func(f *fixture) {
		p := f.process(patient)
		ctx := newChain()
		first := p.lockWith(ctx)
		second, err := p.tryLock(ctx)
		require.NoError(f, err)
		third := p.lockWith(ctx)
		for _, h := range []Hold{second, third} {
			require.Equal(f, first.Fence(), h.Fence())
			require.Equal(f, first.ID(), h.ID())
			p.unlock(h)
		}
		p.unlock(first)
		again := p.lockWith(ctx)
		require.Greater(f, again.Fence(), first.Fence(), "a fresh grant is a fresh fence")
		p.unlock(again)
	}},
	{"the context of a hold re-enters without an owner of the caller", func(f *fixture) {
		p := f.process(patient)
		first := p.lock()
		second := p.lockWith(first.Context())
		require.Equal(f, first.Fence(), second.Fence())
		p.unlock(first)
		p.unlock(second)
	}},
	{"the body of Do re-enters, in depth", func(f *fixture) {
		p := f.process(patient)
		var enter func(ctx context.Context, depth int) error
		enter = func(ctx context.Context, depth int) error {
			if depth == 0 {
				return errBody
			}
			return p.client.Do(ctx, f.name, func(ctx context.Context) error { return enter(ctx, depth-1) })
		}
		require.True(f, enter(context.Background(), 10) == errBody) //nolint:errorlint // the very error
		f.process(patient).free()
	}},
	{"calls with the same context exclude each other from other locks", func(f *fixture) {
		p := f.process(patient)
		other := f.name + "/other"
		require.NoError(f, p.client.Do(context.Background(), f.name, func(ctx context.Context) error {
			h, err := p.client.Lock(ctx, other)
			require.NoError(f, err)
			_, err = p.client.TryLock(ctx, other)
			require.Equal(f, []error{lockerr.ErrNotAcquired}, kinds(err))
			again, err := p.client.TryLock(h.Context(), f.name)
			require.NoError(f, err)
			p.unlock(again)
			p.unlock(h)
			return nil
		}))
	}},
	{"another owner does not re-enter", func(f *fixture) {
		p := f.process(patient)
		h := p.lockWith(newChain())
		_, err := p.tryLock(newChain())
		f.notAcquired(err, h)
		_, err = p.tryLock(context.Background())
		f.notAcquired(err, h)
		p.unlock(h)
	}},
	{"an owner of one client does not re-enter through another", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		ctx := newChain()
		h := p.lockWith(ctx)
		_, err := q.tryLock(ctx)
		f.notAcquired(err, h)
		p.unlock(h)
	}},
	{"others are refused until the last hold is released, in any order", func(f *fixture) {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}} {
			p := f.process(patient)
			ctx := newChain()
			holds := []Hold{p.lockWith(ctx), p.lockWith(ctx), p.lockWith(ctx)}
			for _, i := range order {
				f.process(patient).refused()
				require.NoError(f, holds[i].Context().Err())
				require.True(f, holds[i].Trusted())
				p.unlock(holds[i])
				require.Error(f, holds[i].Context().Err(), "a hold's context ends with the hold")
				require.False(f, holds[i].Trusted(), "nor is it trusted")
				f.unchanged(func() {
					require.Equal(f, []error{lockerr.ErrNotHeld}, kinds(holds[i].Unlock(context.Background())))
				})
			}
			f.process(patient).free()
		}
	}},
	{"a waiter is not woken by an inner release", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		ctx := newChain()
		const times = 10
		outer := p.lockWith(ctx)
		waiter := q.start(context.Background()).sleeps()
		asked := q.sent.sent.Load()
		for range times {
			p.unlock(p.lockWith(ctx))
			q.refused()
		}
		// In a cluster, the waiter also asks when the server confirms the sharded channel.
		require.Less(f, q.sent.sent.Load(), asked+times+times/2, "only the TryLocks ask")
		pending(f, waiter.done, "Lock returns")
		p.unlock(outer)
		q.unlock(waiter.got())
	}},
	{"an owner that lost it does not get it anew until it has let go", func(f *fixture) {
		p := f.process(patient)
		ctx := newChain()
		h := p.lockWith(ctx)
		f.wipe()
		_, err := p.tryLock(ctx)
		f.lost(err, h)
		_, err = p.client.Lock(ctx, f.name)
		f.lost(err, h)
		require.Empty(f, f.keys())
		f.lost(h.Unlock(context.Background()), h)
		p.unlock(p.lockWith(ctx))
	}},
	{"every hold learns of a loss", func(f *fixture) {
		p := f.process(mortal)
		ctx := newChain()
		holds := []Hold{p.lockWith(ctx), p.lockWith(ctx)}
		f.wipe()
		for _, h := range holds {
			receive(f, h.Lost(), "Lost is closed")
			f.lost(context.Cause(h.Context()), h)
			f.lost(h.Unlock(context.Background()), h)
		}
	}},
	{"a refused re-entry leaves the count", func(f *fixture) {
		p := f.process(patient)
		ctx := newChain()
		h := p.lockWith(ctx)
		dead, cancel := context.WithCancel(ctx)
		cancel()
		f.unchanged(func() {
			_, err := p.client.Lock(dead, f.name)
			require.ErrorIs(f, err, context.Canceled)
			require.Empty(f, kinds(err))
		})
		p.unlock(h)
		f.process(patient).free()
	}},
	{"concurrent Locks of one owner do not wait for each other", func(f *fixture) {
		p := f.process(patient)
		ctx := newChain()
		holds := make(chan Hold, 8)
		for range cap(holds) {
			f.users.Go(func() {
				h, err := p.client.Lock(ctx, f.name)
				if assert.NoError(f, err) {
					holds <- h // none is unlocked before all have it
				}
			})
		}
		fence := int64(0)
		var got []Hold
		for range cap(holds) {
			h := receive(f, holds, "every Lock of the owner returns")
			if fence == 0 {
				fence = h.Fence()
			}
			require.Equal(f, fence, h.Fence())
			got = append(got, h)
		}
		for _, h := range got {
			f.users.Go(func() { assert.NoError(f, h.Unlock(context.Background())) })
		}
		f.usersDone()
		f.process(patient).free()
	}},
	{"concurrent Locks of one owner behind a waiter do not wait for each other", func(f *fixture) {
		holder, p := f.process(patient), f.process(patient)
		h := holder.lock()
		ctx := newChain()
		var waiters []*waiting
		for i := range 6 {
			switch {
			case i == 0:
				waiters = append(waiters, p.start(ctx).sleeps())
			case i == 3:
				waiters = append(waiters, p.queue(newChain()).sleeps())
			default:
				waiters = append(waiters, p.queue(ctx).sleeps())
			}
		}
		stranger := waiters[3]
		holder.unlock(h)
		for _, w := range waiters {
			if w != stranger {
				w.got()
			}
		}
		pending(f, stranger.done, "the stranger's Lock returns")
		for _, w := range waiters {
			if w != stranger {
				p.unlock(w.hold)
			}
		}
		p.unlock(stranger.got())
	}},
	{"one owner's goroutines come and go while others contend", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		ctx := newChain()
		cycle := func(p *process, ctx context.Context) {
			for range 25 {
				h, err := p.client.Lock(ctx, f.name)
				if !assert.NoError(f, err) || !assert.NoError(f, h.Unlock(context.Background())) {
					return
				}
			}
		}
		for range 4 {
			f.users.Go(func() { cycle(p, ctx) })
		}
		f.users.Go(func() { cycle(p, context.Background()) })
		f.users.Go(func() { cycle(q, context.Background()) })
		f.usersDone()
	}},
}
