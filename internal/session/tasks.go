package session

import (
	"context"
	"sync"
	"time"
)

// tasks counts background work and calls of users, so that closing can wait for both.
type tasks struct {
	mu     sync.Mutex
	n      int
	idle   chan struct{} // closed when n is 0 and somebody waits for that
	ctx    context.Context
	cancel context.CancelFunc
}

func (t *tasks) start(work func(ctx context.Context)) {
	ctx := t.context()
	t.add()
	go func() {
		defer t.done()
		work(ctx)
	}()
}

// context returns the context for background work. finish ends it.
func (t *tasks) context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancel(ByWorker(context.Background()))
	}
	return t.ctx
}

// add counts work that the caller starts or does. done ends it.
func (t *tasks) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// finish blocks until all work has ended, or ctx ends. Then it ends the context of the work. If ctx
// ended first, finish waits another instant for the work to stop, and returns the reason why ctx
// ended.
func (t *tasks) finish(ctx context.Context) error {
	const instant = 20 * time.Millisecond
	err := t.wait(ctx)
	_ = t.context()
	t.cancel()
	stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), instant)
	defer cancel()
	_ = t.wait(stopped)
	return err
}

func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}
