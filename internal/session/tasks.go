package session

import (
	"context"
	"sync"
)

// tasks counts background work, so that closing can wait for it.
type tasks struct {
	mu     sync.Mutex
	n      int
	idle   chan struct{} // closed when n is 0 and somebody waits for that
	ctx    context.Context
	cancel context.CancelFunc
}

func (t *tasks) start(work func(ctx context.Context)) {
	t.mu.Lock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancel(context.Background())
	}
	ctx := t.ctx
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		work(ctx)
	}()
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

// finish waits for all work; when ctx ends first, the work is told to stop, and
// finish still waits for it to do so, which takes as long as one attempt
// notices.
func (t *tasks) finish(ctx context.Context) error {
	err := t.wait(ctx)
	t.mu.Lock()
	cancel := t.cancel
	t.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	_ = t.wait(context.Background())
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
		return ctx.Err()
	}
}
