package locktest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
)

// waiting is a Lock in a goroutine of its own.
//
// Whether it sleeps can be told without a look inside: who sleeps has asked for
// the Done channel of its context, after the last answer that it got.
type waiting struct {
	p        *process
	answered atomic.Int64 // its scripts, and nobody else's
	asleep   chan struct{}
	done     chan struct{}
	hold     Hold
	err      error
}

// waitingKey finds the waiter in the context of its scripts.
type waitingKey struct{}

// start begins a Lock that has to wait for another process, or not at all.
func (p *process) start(ctx context.Context) *waiting { return p.startAfter(ctx, p.f.subject.Asks) }

// queue begins a Lock that has to wait for another goroutine of the process, which
// waits as well.
func (p *process) queue(ctx context.Context) *waiting {
	return p.startAfter(ctx, p.f.subject.AsksBehind)
}

// behindHolder begins a Lock that is the first to wait for another goroutine of the
// process, which has the lock.
func (p *process) behindHolder(ctx context.Context) *waiting {
	if p.f.subject.Ordered {
		return p.start(ctx) // the queue is in Redis
	}
	return p.queue(ctx)
}

func (p *process) startAfter(ctx context.Context, asks int) *waiting {
	w := &waiting{p: p, asleep: make(chan struct{}), done: make(chan struct{})}
	asleep := sync.OnceFunc(func() { close(w.asleep) })
	ctx, cancel := context.WithCancel(context.WithValue(ctx, waitingKey{}, w))
	p.f.Cleanup(cancel)
	var returned atomic.Bool
	ctx = watched{ctx, func() {
		if !returned.Load() && w.answered.Load() >= int64(asks) {
			asleep()
		}
	}}
	go func() {
		defer close(w.done)
		w.hold, w.err = p.client.Lock(ctx, p.f.name)
		returned.Store(true)
	}()
	return w
}

// watched is a context that tells when it is waited for.
type watched struct {
	context.Context
	look func()
}

// AfterFunc keeps package context from waiting for Done in a goroutine, which could
// come to look at any time.
func (w watched) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(w.Context, f) }

// Done implements context.Context.
func (w watched) Done() <-chan struct{} {
	w.look()
	return w.Context.Done()
}

// sleeps returns when the waiter can only be woken: by a message, by its poll,
// by its context.
func (w *waiting) sleeps() *waiting {
	w.p.f.Helper()
	select {
	case <-w.asleep:
	case <-w.done:
		require.FailNow(w.p.f, "Lock did not wait", "%v", w.err)
	}
	return w
}

// got waits for the lock.
func (w *waiting) got() Hold {
	w.p.f.Helper()
	receive(w.p.f, w.done, "Lock returns")
	require.NoError(w.p.f, w.err)
	require.NotNil(w.p.f, w.hold)
	return w.hold
}

// failed waits for the error.
func (w *waiting) failed() error {
	w.p.f.Helper()
	receive(w.p.f, w.done, "Lock returns")
	require.Error(w.p.f, w.err)
	require.Nil(w.p.f, w.hold)
	return w.err
}
