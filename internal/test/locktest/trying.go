package locktest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var trying = []property{
	{"TryLock asks once and does not wait", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		before := q.sent.sent.Load()
		q.refused()
		require.EqualValues(f, 1, q.sent.sent.Load()-before, "scripts sent")
		require.Empty(f, f.channels(), "TryLock listens to nothing")
		p.unlock(h)
		before = q.sent.sent.Load()
		q.free()
		require.EqualValues(f, 2+f.subject.FurtherScripts, q.sent.sent.Load()-before, "scripts sent by TryLock and Unlock")
	}},
	{"TryLock says who has it and for how long", func(f *fixture) {
		p := f.process(Options{Lease: far, Poll: far, Description: "the night job"})
		h := p.lock()
		facts := f.process(patient).refused()
		if f.subject.Anonymous {
			require.Equal(f, []int{1, 1, 1}, []int{facts.InUse, facts.Limit, facts.Position})
			p.unlock(h)
			return
		}
		require.Equal(f, &lockerr.NotAcquiredError{
			Name: facts.Name, Holder: h.ID(), Description: "the night job", Remaining: facts.Remaining,
			Position: facts.Position, Length: facts.Length, Since: facts.Since,
		}, facts)
		require.Equal(f, f.subject.Ordered, facts.Position == 1 && !facts.Since.IsZero(), "a queue has places")
		require.Contains(f, facts.Name, f.name)
		require.Greater(f, facts.Remaining, time.Duration(0))
		require.LessOrEqual(f, facts.Remaining, far)
		p.unlock(h)
	}},
	{"TryLock of a waiter's own client does not wait either", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		waiter := q.start(context.Background()).sleeps()
		q.refused()
		p.unlock(h)
		q.unlock(waiter.got())
	}},
	{"a refused TryLock changes nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		f.unchanged(func() { q.refused(); p.refused() })
		p.unlock(h)
	}},
	{"a context that is over wins over a free lock", func(f *fixture) {
		p := f.process(patient)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		before := p.sent.sent.Load()
		_, err := p.tryLock(ctx)
		require.Empty(f, kinds(err), "it is the end of the context and nothing else")
		require.ErrorIs(f, err, context.Canceled)
		_, err = p.client.Lock(ctx, f.name)
		require.Empty(f, kinds(err))
		require.ErrorIs(f, err, context.Canceled)
		require.Equal(f, before, p.sent.sent.Load(), "redis is not asked")
	}},
}
