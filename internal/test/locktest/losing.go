package locktest

import (
	"context"

	"github.com/stretchr/testify/require"
)

var losing = []property{
	{"a holder learns that its lock is gone", func(f *fixture) {
		p := f.process(mortal)
		h := p.lock()
		ctx := h.Context()
		f.wipe()
		receive(f, h.Lost(), "Lost is closed")
		receive(f, ctx.Done(), "the context ends")
		f.lost(context.Cause(ctx), h)
		f.lost(context.Cause(h.Context()), h)
		require.False(f, h.Trusted())
		require.Empty(f, f.keys(), "no renewal brings it back")
		f.lost(h.Unlock(context.Background()), h)
	}},
	{"a holder learns that another took its lock", func(f *fixture) {
		p, q := f.process(mortal), f.process(patient)
		h := p.lock()
		f.wipe()
		next := q.lock()
		receive(f, h.Lost(), "Lost is closed")
		f.lost(h.Unlock(context.Background()), h)
		q.unlock(next)
	}},
	{"a holder that Redis does not answer learns of the loss", func(f *fixture) {
		p := f.process(mortal)
		h := p.lock()
		p.die()
		receive(f, h.Lost(), "Lost is closed")
		require.False(f, h.Trusted())
		f.lost(context.Cause(h.Context()), h)
		f.lost(h.Unlock(context.Background()), h)
	}},
	{"a loss of one lock leaves the others of the client", func(f *fixture) {
		p := f.process(mortal)
		h := p.lock()
		other, err := p.client.Lock(context.Background(), "other of "+f.Name())
		require.NoError(f, err)
		f.wipe()
		receive(f, h.Lost(), "Lost is closed")
		trusted := other.TrustedUntil()
		f.eventually(func() bool { return other.TrustedUntil().After(trusted) }, "the other is renewed")
		p.unlock(other)
		f.lost(h.Unlock(context.Background()), h)
	}},
	{"the next of the same client is renewed while a lost hold is still open", func(f *fixture) {
		p := f.process(mortal)
		h := p.lock()
		f.wipe()
		next, err := p.tryLock(context.Background())
		require.NoError(f, err)
		receive(f, h.Lost(), "Lost is closed")
		trusted := next.TrustedUntil()
		f.eventually(func() bool { return next.TrustedUntil().After(trusted) }, "the next is renewed")
		f.lost(h.Unlock(context.Background()), h)
		p.unlock(next)
	}},
	{"waiters of the client that lost it go on", func(f *fixture) {
		p := f.process(mortal)
		h := p.lock()
		waiter := p.behindHolder(context.Background()).sleeps()
		f.wipe()
		p.unlock(waiter.got())
		f.lost(h.Unlock(context.Background()), h)
	}},
}
