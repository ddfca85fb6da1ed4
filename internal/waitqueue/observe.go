package waitqueue

import (
	"context"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lua"
)

// observePlace notifies the observers of the place of a waiter.
func (s *WaiterSet[B]) observePlace(ctx context.Context, c Request[B], p lua.QueueState) {
	if s.session.Observed() {
		e := c.Event(event.Queued)
		e.Position, e.Length = p.Position, p.Length
		s.session.Observe(ctx, e)
	}
}

// noteWake notifies the observers that the waiter is about to ask Redis. now is its state before.
func (w *waiter[B]) noteWake(now snapshot) {
	e := w.request.Event(event.Woken)
	switch {
	case now.heartbeatEnded:
		e.Result = event.Poll
	case w.snapshot().hinted:
		e.Result = event.Message
	default:
		e.Result = event.LeaseEnd
	}
	w.set.session.Observe(context.Background(), e)
}
