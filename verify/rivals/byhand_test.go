package rivals_test

import (
	"context"
	"sync"
	"time"
)

// byHand is a hold that its user renews, because neither redsync nor redislock renews by itself.
// The user writes the loop, and decides how to react to answers. Here it renews each third of the
// lease. It gives up if the library says that the lock is not ours, and retries after any other
// error.
type byHand struct {
	extend func(context.Context) error
	gone   func(error) bool // reports an error that says the lock is not ours
	until  func() time.Time
	lost   chan struct{}
	stop   context.CancelFunc

	mu    sync.Mutex
	trust time.Time
}

// loops are the renewal loops of one client.
type loops struct {
	ctx  context.Context
	stop context.CancelFunc
	all  *sync.WaitGroup
}

func newLoops() loops {
	ctx, stop := context.WithCancel(context.Background())
	return loops{ctx, stop, new(sync.WaitGroup)}
}

func (l loops) end() {
	l.stop()
	l.all.Wait()
}

func (h *byHand) start(l loops, every time.Duration) {
	ctx, stop := context.WithCancel(l.ctx)
	h.stop, h.lost, h.trust = stop, make(chan struct{}), h.until()
	l.all.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := h.extend(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil && h.gone(err) {
				close(h.lost)
				return
			}
			h.mu.Lock()
			h.trust = h.until()
			h.mu.Unlock()
		}
	})
}

// Lost is closed when a renewal reported the loss.
func (h *byHand) Lost() <-chan struct{} { return h.lost }

func (h *byHand) TrustedUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trust
}

func (h *byHand) Fence() int64 { return 0 }
