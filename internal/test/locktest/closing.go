package locktest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var closing = []property{
	{"Close gives back what is held and ends it with that cause", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		ctx := h.Context()
		p.close()
		f.process(patient).free()
		receive(f, h.Lost(), "Lost is closed")
		receive(f, ctx.Done(), "the context ends")
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(context.Cause(ctx)))
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(h.Unlock(context.Background())))
		require.False(f, h.Trusted())
	}},
	{"Close lets waiters elsewhere have the lock", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		p.lock()
		waiter := q.start(context.Background()).sleeps()
		p.close()
		q.unlock(waiter.got())
	}},
	{"Close wakes the client's waiters", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		asks := q.start(context.Background()).sleeps()
		queues := q.queue(context.Background()).sleeps()
		q.close()
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(asks.failed()))
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(queues.failed()))
		f.eventually(func() bool { return len(f.channels()) == 0 }, "nobody listens any more")
		p.unlock(h)
		p.free()
	}},
	{"Close wakes waiters behind a hold of the same client", func(f *fixture) {
		p := f.process(patient)
		p.lock()
		waiter := p.behindHolder(context.Background()).sleeps()
		p.close()
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(waiter.failed()))
		f.process(patient).free()
	}},
	{"a closed client refuses everything", func(f *fixture) {
		p := f.process(patient)
		p.close()
		_, err := p.client.Lock(context.Background(), f.name)
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(err))
		_, err = p.tryLock(context.Background())
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(err))
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(p.do(func(context.Context) error { return nil })))
		p.close()
	}},
	{"a Close that races with grants leaves nothing held", func(f *fixture) {
		for range 5 {
			p := f.process(patient)
			for range 4 {
				f.users.Go(func() {
					for {
						h, err := p.client.Lock(context.Background(), f.name)
						if err != nil {
							assert.Equal(f, []error{lockerr.ErrClosed}, kinds(err))
							return
						}
						_ = h.Unlock(context.Background())
					}
				})
			}
			p.close()
			f.usersDone()
			f.process(patient).free()
		}
	}},
}

func (p *process) close() {
	p.f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(p.f, p.client.Close(ctx))
}
