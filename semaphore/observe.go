package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
)

// Event returns an event of the request.
func (w *request) Event(kind event.Kind) event.Event {
	return event.Event{Kind: kind, Primitive: event.Semaphore, Name: w.keys.Name, Wait: w.wait}
}

// observeBegin notifies the observers that the request begins.
func (w *request) observeBegin(ctx context.Context) {
	if w.session.Observed() {
		w.began, w.wait = time.Now(), w.session.NextWait()
		w.session.Observe(ctx, w.waitEvent(event.WaitBegan))
	}
}

// observeEnd notifies the observers that the request ends, once.
func (w *request) observeEnd(ctx context.Context, h *acquisition.Hold, err error) {
	if w.began.IsZero() {
		return
	}
	e := w.waitEvent(event.WaitEnded)
	e.Duration, e.Source = time.Since(w.began), event.Redis
	w.began = time.Time{}
	acquisition.ObserveWaitEnd(ctx, w.session, e, h, err)
}

func (w *request) waitEvent(kind event.Kind) event.Event {
	e := w.Event(kind)
	e.Try, e.Units = w.isTry, w.units
	return e
}
