package locktest

import (
	"context"

	"github.com/stretchr/testify/require"
)

// order has the promises on who is served first, for locks that make them.
func order(s Subject) []property {
	var all []property
	if s.OrderedLocally {
		all = append(all, property{"waiters of one client are served in order of arrival", func(f *fixture) {
			p := f.process(patient)
			h := p.lock()
			waiters := []*waiting{p.behindHolder(context.Background()).sleeps()}
			for range 11 { // more than one client gets in a row
				waiters = append(waiters, p.queue(context.Background()).sleeps())
			}
			f.servedInOrder(h, waiters)
		}})
	}
	if s.Ordered {
		all = append(all, property{"waiters of all clients are served in order of arrival", func(f *fixture) {
			p, q := f.process(patient), f.process(patient)
			h := f.process(patient).lock()
			waiters := []*waiting{p.start(context.Background()).sleeps(), q.start(context.Background()).sleeps()}
			for range 5 {
				waiters = append(waiters, p.queue(context.Background()).sleeps(), q.queue(context.Background()).sleeps())
			}
			f.servedInOrder(h, waiters)
		}})
	}
	return all
}

// servedInOrder unlocks h and then each next hold. It asserts that the waiters get the lock one by
// one.
func (f *fixture) servedInOrder(h Hold, waiters []*waiting) {
	f.Helper()
	for _, w := range waiters {
		require.NoError(f, h.Unlock(context.Background()))
		h = w.got() // not a later one, because this one has not been unlocked yet
	}
	require.NoError(f, h.Unlock(context.Background()))
}
