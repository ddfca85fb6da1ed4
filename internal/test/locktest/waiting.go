package locktest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
)

// waiting is a Lock in a goroutine of its own.
//
// The test can see from outside whether it sleeps. A waiter that sleeps has called Done of its
// context after the last answer that it got.
type waiting struct {
	p        *process
	answered atomic.Int64 // of its own scripts
	asleep   chan struct{}
	done     chan struct{}
	hold     Hold
	err      error
}

// waitingKey finds the waiter in the context of its scripts.
type waitingKey struct{}

// start begins a Lock that waits for another process, or does not wait.
func (p *process) start(ctx context.Context) *waiting { return p.startAfter(ctx, p.f.subject.Asks) }

// queue begins a Lock that waits for another waiting goroutine of the process.
func (p *process) queue(ctx context.Context) *waiting {
	return p.startAfter(ctx, p.f.subject.AsksBehind)
}

// behindHolder begins the first Lock that waits for another goroutine of the process, which has the
// lock.
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

// watched is a context that reports when somebody waits for it.
type watched struct {
	context.Context
	look func()
}

// AfterFunc keeps package context from waiting for Done in a goroutine, which could call Done at
// any time.
func (w watched) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(w.Context, f) }

// Done implements context.Context.
func (w watched) Done() <-chan struct{} {
	w.look()
	return w.Context.Done()
}

// sleeps returns when only a message, its poll, or its context can wake up the waiter.
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
