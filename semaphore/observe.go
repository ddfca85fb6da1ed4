package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
)

// Event returns an event of the request.
func (r *request) Event(kind event.Kind) event.Event {
	return event.Event{Kind: kind, Primitive: event.Semaphore, Name: r.keys.Name, Wait: r.wait}
}

// observeBegin notifies the observers that the request begins.
func (r *request) observeBegin(ctx context.Context) {
	if r.session.Observed() {
		r.began, r.wait = time.Now(), r.session.NextWait()
		r.session.Observe(ctx, r.waitEvent(event.WaitBegan))
	}
}

// observeEnd notifies the observers that the request ends, once.
func (r *request) observeEnd(ctx context.Context, h *acquisition.Hold, err error) {
	if r.began.IsZero() {
		return
	}
	e := r.waitEvent(event.WaitEnded)
	e.Duration, e.Source = time.Since(r.began), event.Redis
	r.began = time.Time{}
	acquisition.ObserveWaitEnd(ctx, r.session, e, h, err)
}

func (r *request) waitEvent(kind event.Kind) event.Event {
	e := r.Event(kind)
	e.Try, e.Units = r.isTry, r.units
	return e
}
