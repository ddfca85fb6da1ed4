package mutex

import (
	"context"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lua"
)

// Event returns an event of the request.
func (w *Request) Event(kind event.Kind) event.Event {
	return event.Event{Kind: kind, Primitive: w.Primitive, Name: w.Name, Wait: w.wait}
}

// NoteCleanUp notifies the observers of a late grant, if a cleanup of an id has freed the lock.
func (w *Request) NoteCleanUp(id string, status lua.Status) {
	if status == lua.Freed {
		e := w.Event(event.LateGrant)
		e.ID = id
		w.Session().Observe(context.Background(), e)
	}
}

// NoteWake notifies the observers that a waiter is about to ask Redis again.
func (w *Request) NoteWake(cause event.Result) {
	e := w.Event(event.Woken)
	e.Result = cause
	w.Session().Observe(context.Background(), e)
}

// observeBegin notifies the observers that the request begins.
func (w *Request) observeBegin(ctx context.Context) {
	if w.Session().Observed() {
		w.wait = w.Session().NextWait()
		w.Session().Observe(ctx, w.waitEvent(event.WaitBegan))
	}
}

// observeEnd notifies the observers that the request ends, once.
func (w *Request) observeEnd(ctx context.Context, h *acquisition.Hold, err error) {
	if !w.Session().Observed() || w.began == 0 {
		return
	}
	e := w.waitEvent(event.WaitEnded)
	e.Duration, e.Source = w.began.Age(), w.Source
	w.began = 0
	acquisition.ObserveWaitEnd(ctx, w.Session(), e, h, err)
}

func (w *Request) waitEvent(kind event.Kind) event.Event {
	e := w.Event(kind)
	e.Try, e.Units = w.Try, 1
	return e
}
