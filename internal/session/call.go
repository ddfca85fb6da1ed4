package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Call is one operation on one lock, tried until it is answered.
type Call struct {
	Op, Name string        // for errors: "lock", "orders:42"
	Limit    time.Duration // how long one attempt may go unanswered
	Waits    bool          // the operation gives up when the client closes
	Insist   bool          // try again also when Redis refuses: releases do
	Fault    func(error)   // is told why an attempt failed, and nil when it did not; may be nil
}

// Answer is what a call learned.
type Answer[T any] struct {
	Value  T
	Sent   time.Time // before the answered attempt was handed to go-redis
	Strays Strays    // what its unanswered attempts may still do
}

// Do sends a script until Redis answers it, ctx ends, or the client closes. An
// attempt that goes unanswered is left behind and sent again, which the scripts
// bear; voidAfter is the end in server time to send with this attempt.
//
// Do returns as soon as ctx ends: go-redis by itself would look at a deadline
// only between commands, and at a cancel never, so each attempt runs in a
// goroutine of its own, for at most one read timeout of the client longer.
//
// The error is a *lockerr.OpError: ErrUnavailable when no attempt can have
// taken effect, ErrIndeterminate when one may have, ErrRefused, ErrClosed. The
// end of ctx shows beside it.
func Do[T any](ctx context.Context, s *Session, c Call, send func(ctx context.Context, voidAfter lua.Time) (T, error)) (Answer[T], error) {
	var out Answer[T]
	if c.Waits && s.IsClosing() {
		return out, c.failed(ctx, s, lockerr.ErrClosed, nil)
	}
	var told verdict
	for tries := 0; ; tries++ {
		out.Sent = time.Now()
		voidAfter := s.Now().Add(c.Limit)
		v, left, err := attempt(ctx, s, c, voidAfter, send)
		out.Value = v
		if errors.Is(err, errVoid) && tries < 2 {
			continue // the clock is known now
		}
		if c.Fault != nil && ctx.Err() == nil {
			c.Fault(err) // or that there is none
		}
		if err == nil {
			return out, nil
		}
		if told.hear(err) == lua.Unanswered {
			out.Strays = out.Strays.And(unanswered(s, voidAfter, left))
		}
		if told.refused != nil && !c.Insist || !s.pause(ctx, c, tries) {
			return out, c.failed(ctx, s, told.kind(), told.with(err))
		}
	}
}

// verdict is what the failed attempts of a call amount to.
type verdict struct {
	unsure  bool  // one may have taken effect
	refused error // the server's last word, if it was a refusal
	telling error // the last error that says more than that time ran out
}

// hear takes in how an attempt failed. One that got no connection changes
// nothing of what the server had said before.
func (v *verdict) hear(err error) lua.Fault {
	fault, _ := lua.Classify(err)
	if !errors.Is(err, errUnanswered) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		v.telling = err
	}
	switch {
	case errors.Is(err, errVoid):
		fault = lua.NotRun
		v.refused = nil
	case fault == lua.Refused:
		v.refused = err
	case fault == lua.Unanswered && !errors.Is(err, errUnsent):
		v.unsure = true
	case fault == lua.NotRun:
		v.refused = nil
	}
	return fault
}

func (v *verdict) kind() error {
	switch {
	case v.unsure:
		return lockerr.ErrIndeterminate
	case v.refused != nil:
		return lockerr.ErrRefused
	}
	return lockerr.ErrUnavailable
}

// with is the cause to show beside the kind: the last attempt's, what was wrong
// before if that one was only cut short, and a refusal if that is neither the
// kind nor the cause already.
func (v *verdict) with(last error) error {
	if v.telling != nil && !errors.Is(last, v.telling) {
		last = errors.Join(v.telling, last)
	}
	if v.refused == nil {
		return last
	}
	cause := v.refused
	if v.unsure {
		cause = fmt.Errorf("%w: %w", lockerr.ErrRefused, cause)
	}
	if !errors.Is(last, v.refused) {
		cause = errors.Join(cause, last)
	}
	return cause
}

// result is what an attempt comes to.
type result[T any] struct {
	value T
	err   error
}

// attempt sends once and waits until it is answered, ctx ends, or the limit has
// passed; then it is left behind, and left tells when it ends. A client that closes
// waits for the answer as long as it may: a grant that is left behind could be granted
// after it was given back.
func attempt[T any](ctx context.Context, s *Session, c Call, voidAfter lua.Time, send func(ctx context.Context, voidAfter lua.Time) (T, error)) (v T, left <-chan result[T], err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	var stop <-chan struct{}
	if c.Waits {
		stop = s.tasks.context().Done()
	}
	flight := new(lua.Flight)
	results := make(chan result[T], 1) // buffered: one that is left behind still ends
	go func() {
		v, err := send(lua.Track(ctx, flight), voidAfter)
		results <- result[T]{v, err}
	}()
	select {
	case r := <-results:
		v, err = r.value, r.err
	case <-ctx.Done():
		left, err = results, errUnanswered
	case <-stop:
		left, err = results, errUnanswered
	}
	if err != nil && !flight.Leave() {
		err = errors.Join(err, errUnsent)
	}
	return v, left, err
}

// closingFor is closed when the call has to give up because the client closes.
func (s *Session) closingFor(c Call) <-chan struct{} {
	if c.Waits {
		return s.closing.Done()
	}
	return nil
}

var errUnanswered = errors.New("no answer in time")

// errUnsent is beside the error of an attempt that got no connection.
var errUnsent = errors.New("no connection in time")

// errVoid is a command that came after its end: the server's clock was not
// known yet, or was set.
var errVoid = errors.New("the server's clock is ahead of the guess")

// Heard takes the server's clock from a reply. The error it returns for a void
// command makes Do send it again, with an end that fits.
func (s *Session) Heard(status lua.Status, now lua.Time) error {
	s.clock.learn(now)
	if status == lua.Void {
		return errVoid
	}
	return nil
}

// pause waits before the next attempt: longer each time, and by chance, so that
// many waiters do not come back to a recovering server all at once. It reports
// whether there may be one.
func (s *Session) pause(ctx context.Context, c Call, tries int) bool {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	d := min(first<<min(tries, 10), most)
	d = d/2 + rand.N(d/2)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-s.closingFor(c):
	}
	return false
}

// failed is the error of a call that gives up.
func (c Call) failed(ctx context.Context, s *Session, kind, err error) error {
	if c.Waits && s.IsClosing() {
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: c.Op, Name: c.Name}
	}
	return &lockerr.OpError{Kind: kind, Op: c.Op, Name: c.Name, Err: errors.Join(Cause(ctx), err)}
}

// Cause is why ctx ended, in a form that matches both ctx.Err() and the cause
// given by whoever ended it. Nil while ctx lives.
func Cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
