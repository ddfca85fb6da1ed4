package locktest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
)

var waking = []property{
	{"a waiter elsewhere gets the lock by the message of its release", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		waiter := q.start(context.Background()).sleeps()
		pending(f, waiter.done, "Lock returns")
		p.unlock(h)
		q.unlock(waiter.got())
	}},
	{"a waiter of the same client gets the lock with its release", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		waiter := p.behindHolder(context.Background()).sleeps()
		p.unlock(h)
		p.unlock(waiter.got())
	}},
	{"every waiter gets the lock in the end, once", func(f *fixture) {
		const processes, each = 4, 4
		holder := f.process(patient)
		h := holder.lock()
		for range processes {
			p := f.process(patient)
			for i := range each {
				waiter := p.start
				if i > 0 {
					waiter = p.queue
				}
				w := waiter(context.Background()).sleeps()
				f.users.Go(func() {
					<-w.done
					if w.err == nil {
						w.err = w.hold.Unlock(context.Background())
					}
				})
				f.Cleanup(func() { require.NoError(f, w.err) })
			}
		}
		holder.unlock(h)
		f.usersDone()
	}},
	{"a release between a refusal and the sleep is not missed", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		for range 30 {
			h := p.lock()
			waiter := q.start(context.Background())
			p.unlock(h) // at any moment of the first steps of the waiter
			q.unlock(waiter.got())
		}
	}},
	{"a waiter gets the lock when the lease of a dead holder ends", func(f *fixture) {
		p, q := f.process(mortal), f.process(patient)
		h := p.lock()
		waiter := q.start(context.Background()).sleeps()
		p.die()
		q.unlock(waiter.got())
		receive(f, h.Lost(), "the holder is notified, though redis does not answer it")
	}},
	{"a waiter gets the lock by its poll when no message comes", func(f *fixture) {
		p, q := f.process(patient), f.process(Options{Lease: far, Poll: 50 * time.Millisecond})
		h := p.lock()
		waiter := q.start(context.Background()).sleeps()
		f.wipe() // nobody is notified of that
		q.unlock(waiter.got())
		require.Error(f, h.Unlock(context.Background()))
	}},
	{"a renewed lock outlives its lease", func(f *fixture) {
		p, q := f.process(mortal), f.process(patient)
		h := p.lock()
		first := h.TrustedUntil()
		f.eventually(func() bool { return h.TrustedUntil().After(first.Add(mortal.Lease)) }, "trust is extended again and again")
		q.refused()
		require.True(f, h.Trusted())
		pending(f, h.Lost(), "the hold is lost")
		p.unlock(h)
		q.free()
	}},
}
