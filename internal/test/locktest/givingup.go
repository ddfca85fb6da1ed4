package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

type valueKey struct{}

var errWhy = errors.New("the request was withdrawn")

var givingUp = []property{
	{"a deadline ends the wait and says who had the lock", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		waiter := q.start(ctx)
		err := waiter.failed()
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.NotErrorIs(f, err, context.Canceled)
		if waiter.slept() { // else the deadline came during an attempt, which is rare
			f.notAcquired(err, h)
		}
		p.unlock(h)
		q.free()
	}},
	{"a wait timeout ends the wait and leaves nothing", func(f *fixture) {
		hurried := patient
		hurried.WaitTimeout = 300 * time.Millisecond
		p, q := f.process(patient), f.process(hurried)
		h := p.lock()
		f.unchanged(func() {
			waiter := q.start(context.Background())
			err := waiter.failed()
			require.NotErrorIs(f, err, context.DeadlineExceeded, "the caller set no deadline")
			require.NotErrorIs(f, err, context.Canceled)
			require.ErrorContains(f, err, "gave up after 300ms")
			if waiter.answered.Load() >= int64(f.subject.Asks) { // else it may not have learned who has the lock, which is rare
				f.notAcquired(err, h)
			}
			f.eventually(func() bool { return len(f.channels()) == 0 }, "nobody listens any more")
		})
		p.unlock(h)
		q.free()
	}},
	{"a cancel ends the wait and its cause shows", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithCancelCause(context.Background())
		waiter := q.start(ctx).sleeps()
		cancel(errWhy)
		err := waiter.failed()
		f.notAcquired(err, h)
		require.ErrorIs(f, err, context.Canceled)
		require.ErrorIs(f, err, errWhy)
		require.NotErrorIs(f, err, context.DeadlineExceeded)
		p.unlock(h)
	}},
	{"a waiter behind one of its own client gives up alone", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithCancel(context.Background())
		gone := p.behindHolder(ctx).sleeps()
		stays := p.queue(context.Background()).sleeps()
		cancel()
		f.notAcquired(gone.failed(), h)
		pending(f, stays.done, "the other Lock returns")
		p.unlock(h)
		p.unlock(stays.got())
	}},
	{"a waiter that asks gives up and the next of its client asks on", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithCancel(context.Background())
		gone := q.start(ctx).sleeps()
		stays := q.queue(context.Background()).sleeps()
		cancel()
		f.notAcquired(gone.failed(), h)
		p.unlock(h)
		q.unlock(stays.got())
	}},
	{"a cancelled waiter leaves nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		f.unchanged(func() {
			ctx, cancel := context.WithCancel(context.Background())
			waiter := q.start(ctx).sleeps()
			f.eventually(func() bool { return len(f.channels()) > 0 }, "a waiter listens soon after it has its place")
			cancel()
			require.Error(f, waiter.failed())
			f.eventually(func() bool { return len(f.channels()) == 0 }, "nobody listens any more")
		})
		p.unlock(h)
		f.process(patient).free()
	}},
	{"a cancel that races with the grant leaves the lock or nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		for range 30 {
			h := p.lock()
			ctx, cancel := context.WithCancel(context.Background())
			waiter := q.start(ctx).sleeps()
			go cancel()
			p.unlock(h)
			receive(f, waiter.done, "Lock returns")
			if waiter.err == nil {
				p.refused()
				q.unlock(waiter.hold)
			}
		}
		p.unlock(p.lock()) // the client has released the late grant
	}},
	{"a cancel that races with the question leaves nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		for range 30 {
			ctx, cancel := context.WithCancel(context.Background())
			waiter := q.start(ctx)
			go cancel()
			receive(f, waiter.done, "Lock returns")
			if waiter.err == nil {
				q.unlock(waiter.hold)
				continue
			}
			require.ErrorIs(f, waiter.err, context.Canceled)
			require.LessOrEqual(f, len(kinds(waiter.err)), 1)
		}
		p.unlock(p.lock())
	}},
	{"a cancel that races with the subscription leaves nothing", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		f.unchanged(func() {
			keys := len(f.keys())
			for range 30 {
				ctx, cancel := context.WithCancel(context.Background())
				waiter := q.start(ctx)
				go cancel()
				require.ErrorIs(f, waiter.failed(), context.Canceled)
			}
			f.eventually(func() bool { return len(f.channels()) == 0 && len(f.keys()) == keys }, "nobody listens or queues any more")
		})
		waiter := q.start(context.Background()).sleeps()
		p.unlock(h)
		q.unlock(waiter.got())
	}},
	{"a hold outlives the context it was locked with", func(f *fixture) {
		p := f.process(patient)
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), valueKey{}, "kept"), limit)
		h := p.lockWith(ctx)
		cancel()
		f.process(patient).refused()
		pending(f, h.Lost(), "the hold is lost")
		require.NoError(f, h.Context().Err())
		require.Equal(f, "kept", h.Context().Value(valueKey{}))
		_, has := h.Context().Deadline()
		require.False(f, has, "the deadline bounds the wait and nothing else")
		p.unlock(h)
	}},
}

// notAcquired asserts the error of a wait for a lock that h had.
func (f *fixture) notAcquired(err error, h Hold) {
	f.Helper()
	require.Equal(f, []error{lockerr.ErrNotAcquired}, kinds(err), "%v", err)
	var facts *lockerr.NotAcquiredError
	require.ErrorAs(f, err, &facts)
	require.True(f, f.subject.Anonymous || facts.Holder == h.ID(), "it names %q", facts.Holder)
	require.Contains(f, facts.Name, f.name)
}

// slept reports whether the waiter began to sleep.
func (w *waiting) slept() bool {
	select {
	case <-w.asleep:
		return true
	default:
		return false
	}
}
