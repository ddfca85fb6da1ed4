package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
)

// ObserveWaitEnd notifies the observers that a request ends, with a hold or an error. e has what is
// known of the request. From then on, the observers know of the grant, and learn of its end. A
// grant that no call returned has no events.
func ObserveWaitEnd(ctx context.Context, s *session.Session, e event.Event, h *Hold, err error) {
	e.Kind, e.Err, e.Result = event.WaitEnded, err, waitResult(ctx, err)
	if err != nil {
		e.Source = 0
		s.Observe(ctx, e)
		return
	}
	e.ID, e.Fence = h.A.ID, h.A.Fence
	fresh := e.Source != event.Reentry
	if fresh {
		h.A.mu.Lock()
		h.A.isObserved = true
		h.A.mu.Unlock()
	}
	s.Observe(ctx, e)
	if fresh {
		h.A.observeEnd(ctx, nil) // it may have ended meanwhile
	}
}

// ErrAborted is the error of a request whose call does not return.
var ErrAborted = errors.New("a panic, or the end of the goroutine")

// waitResult returns the result of a request with ctx that ends with err.
func waitResult(ctx context.Context, err error) event.Result {
	var refused *lockerr.NotAcquiredError
	switch {
	case err == nil:
		return event.Acquired
	case errors.Is(err, lockerr.ErrClosed):
		return event.Closed
	case errors.Is(err, lockerr.ErrNotReplicated):
		return event.NotReplicated
	case errors.Is(err, lockerr.ErrUnavailable), errors.Is(err, lockerr.ErrIndeterminate):
		return event.Unavailable
	case errors.Is(err, lockerr.ErrLost):
		return event.AfterLoss
	case errors.Is(err, lockerr.ErrRefused), errors.Is(err, lockerr.ErrConfig):
		return event.Refused
	case errors.As(err, &refused):
		if errors.Is(refused.Err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
			return event.Cancelled // not a deadline whose cause says so
		}
		return event.Busy
	case errors.Is(err, ErrAborted):
		return event.Aborted
	}
	return event.Cancelled
}

// observeEnd notifies the observers of the end of the acquisition, once, if it has ended. err is
// the error of a release.
func (a *Acquisition) observeEnd(ctx context.Context, err error) {
	if !a.session.Observed() {
		return
	}
	a.mu.Lock()
	isLost, first := a.state == lost, a.isObserved && !a.endObserved && (a.state == lost || a.backendNotified)
	a.endObserved = a.endObserved || first
	a.mu.Unlock()
	if !first {
		return
	}
	e := a.event(event.Released)
	if e.Err = err; isLost {
		e.Kind, e.Result, e.Err = event.Lost, a.lossResult, nil
	}
	e.Duration = time.Since(a.Sent)
	a.session.Observe(ctx, e)
}

// event returns an event of the acquisition.
func (a *Acquisition) event(kind event.Kind) event.Event {
	return event.Event{Kind: kind, Primitive: a.Primitive, Name: a.Name, ID: a.ID, Fence: a.Fence, Units: int(a.Units)}
}
