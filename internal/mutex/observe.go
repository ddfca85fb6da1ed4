package mutex

import (
	"context"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
)

// Event returns an event of the request.
func (r *Request) Event(kind event.Kind) event.Event {
	return event.Event{Kind: kind, Primitive: r.Primitive, Name: r.Name, Wait: r.wait}
}

// NoteLateGrant notifies the observers of a late grant, which the client has released.
func (r *Request) NoteLateGrant(id string) {
	e := r.Event(event.LateGrant)
	e.ID = id
	r.Session().Observe(context.Background(), e)
}

// NoteWake notifies the observers that a waiter is about to ask Redis again.
func (r *Request) NoteWake(cause event.Result) {
	e := r.Event(event.Woken)
	e.Result = cause
	r.Session().Observe(context.Background(), e)
}

// observeBegin notifies the observers that the request begins.
func (r *Request) observeBegin(ctx context.Context) {
	if r.Session().Observed() {
		r.wait = r.Session().NextWait()
		r.Session().Observe(ctx, r.waitEvent(event.WaitBegan))
	}
}

// observeEnd notifies the observers that the request ends, once.
func (r *Request) observeEnd(ctx context.Context, h *acquisition.Hold, err error) {
	if !r.Session().Observed() || r.began == 0 {
		return
	}
	e := r.waitEvent(event.WaitEnded)
	e.Duration, e.Source = r.began.Age(), r.Source
	r.began = 0
	acquisition.ObserveWaitEnd(ctx, r.Session(), e, h, err)
}

func (r *Request) waitEvent(kind event.Kind) event.Event {
	e := r.Event(kind)
	e.Try, e.Units = r.Try, 1
	return e
}
