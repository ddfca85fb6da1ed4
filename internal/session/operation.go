package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Operation is one operation on one lock, tried until it is answered.
type Operation struct {
	Op, Name       string        // for errors: "lock", "orders:42"
	AttemptTimeout time.Duration // how long one attempt may go unanswered at most
	StopOnClose    bool          // the operation gives up when the client closes
	RetryRefused   bool          // try again also when Redis refuses: releases do
	OnAttempt      func(error)   // is called with the error of each attempt, or with nil; may be nil
	// OnStay is called before an attempt that the caller will not leave. If it is not answered by
	// overdue, Redis does not answer. May be nil.
	OnStay     func(overdue time.Time)
	MaxBackoff time.Duration // the longest pause before another attempt; 0: half a second

	// Window is how long what an attempt gets in Redis is sure to stand. Do sends no
	// attempt, and lets none run, later than that after the first one that may have
	// run: it could get the same a second time under the same id. 0: no such end.
	Window time.Duration
	// Share is how long what an attempt may find in Redis is sure to stand, for a call
	// that goes on after it. The first attempts get a part of it, or of the Window, so
	// that a lost one leaves time for another. 0: the Window alone.
	Share time.Duration
	// Adaptive is what earlier calls of the same wait have learned of the link; nil: nothing is
	// learned. It is for one goroutine.
	Adaptive *AdaptiveTimeout
	// MaybeApplied says that an earlier request for the same may have taken effect.
	MaybeApplied bool
}

// ErrWindowExpired ends a call whose Window is over. Its id must be given up; the caller may
// ask anew under a fresh one.
var ErrWindowExpired = errors.New("not answered for as long as what it got would stand")

// Answer is what a call learned.
type Answer[T any] struct {
	Value    T
	Sent     time.Time // before the answered attempt was handed to go-redis
	InFlight InFlight  // what its unanswered attempts may still do
}

// Do sends a script until Redis answers it, ctx ends, or the client closes. An
// attempt that goes unanswered is left behind and sent again, which the scripts
// bear; voidAfter is the end in server time to send with this attempt.
//
// Do returns as soon as ctx ends. send runs in the goroutine of the caller and sends by
// rdb, which goes through package sender: a command may be left behind there, and send then
// gets sender.ErrUnanswered.
//
// The error is a *lockerr.OpError: ErrUnavailable when no attempt can have
// taken effect, ErrIndeterminate when one may have, ErrRefused, ErrClosed. The
// end of ctx shows beside it, and alone when it had ended before. ErrWindowExpired shows too.
func Do[T any](ctx context.Context, s *Session, c Operation, send func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (T, error)) (Answer[T], error) {
	var out Answer[T]
	if c.StopOnClose && s.IsClosing() {
		return out, c.opError(ctx, s, lockerr.ErrClosed, nil)
	}
	if ctx.Err() != nil && !c.MaybeApplied {
		return out, c.opError(ctx, s, nil, nil)
	}
	var failed failure
	var first time.Time // when the first attempt that may have run was sent
	for tries := 0; ; tries++ {
		out.Sent = time.Now()
		if !failed.maybeApplied {
			first = out.Sent
		}
		since := out.Sent.Sub(first)
		limit := c.timeoutFor(since, s.latency.minTimeout())
		valid := c.validFor(since, limit)
		if valid <= 0 {
			c.Adaptive.onExpired(c.Window)
			return out, c.opError(ctx, s, lockerr.ErrIndeterminate, failed.cause(ErrWindowExpired))
		}
		voidAfter := s.Now().Add(valid)
		stays := tries == 0 && s.mayStay(ctx, c)
		if stays && c.OnStay != nil {
			c.OnStay(out.Sent.Add(limit))
		}
		v, how, err := runAttempt(ctx, s, c, limit, stays, voidAfter, send)
		out.Value = v
		if errors.Is(err, errVoid) && tries < 2 {
			continue // the clock is known now
		}
		if c.OnAttempt != nil && ctx.Err() == nil {
			c.OnAttempt(err) // or that there is none
		}
		if err == nil {
			took := time.Since(out.Sent)
			c.Adaptive.onAnswer(took)
			if took < limit {
				s.onPromptAnswer(took)
			} else { // stayed for it
				s.onLateAnswer(nil, took)
			}
			return out, nil
		}
		failed.beforeEnd = failed.beforeEnd || ctx.Err() == nil
		if failed.add(err, how.unsent) {
			out.InFlight = out.InFlight.Merge(newInFlight(s, voidAfter, how.abandoned))
		}
		if failed.isFinal(c) || !s.backoff(ctx, c, tries) {
			failed.maybeApplied = failed.maybeApplied || c.MaybeApplied
			err = failed.cause(nil)
			if failed.beforeEnd || c.MaybeApplied {
				err = failedEarlier{err}
			}
			return out, c.opError(ctx, s, failed.kind(), err)
		}
	}
}

// mayStay reports whether an attempt has no need to leave before go-redis gives up: nothing
// ends ctx sooner, and a lost reply leaves time for another attempt. Only the first attempt
// stays, so a server that hangs costs a call its patience once. Without an open connection,
// go-redis might dial for much longer.
func (s *Session) mayStay(ctx context.Context, c Operation) bool {
	enough := 4 * c.AttemptTimeout
	if share := max(c.Window, c.Share); share > 0 {
		enough = share / 4
	}
	return 0 < s.Timeout && s.Timeout <= enough && lasts(ctx, s.Timeout+c.AttemptTimeout) && (s.HasIdleConn == nil || s.HasIdleConn())
}

// timeoutFor is how long an attempt may go unanswered that is sent that long after the first
// that may have run. With a window or a share, the first attempts get a part of it, so
// that a lost reply leaves time for another attempt. A later attempt gets as long as all
// before it, for a server that is slow. Where answers are known to take longer than the
// call allows, an attempt gets known.
func (c Operation) timeoutFor(since, known time.Duration) time.Duration {
	const least = 50 * time.Millisecond
	d, longest := c.AttemptTimeout, 4*c.AttemptTimeout
	if share := max(c.Window, c.Share); share > 0 {
		d, longest = min(d, max(share/4, since, c.Adaptive.value(), least)), share
	}
	return max(d, min(known, longest))
}

// validFor is how long after its sending an attempt may run, which may take limit, that long
// after the first that may have run.
func (c Operation) validFor(since, limit time.Duration) time.Duration {
	valid := max(c.AttemptTimeout, limit)
	if c.Window == 0 {
		return valid
	}
	return min(valid, c.Window-since)
}

// failure is what the failed attempts of a call amount to.
type failure struct {
	maybeApplied bool  // one may have taken effect
	refused      error // the server's last word, if it was a refusal
	unclear      bool  // the last word does not tell what was done, nor would the next
	closed       bool  // the go-redis client was closed
	beforeEnd    bool  // one failed before the context of the call ended
	last         error // the last error
	specific     error // the last one that says more than that time ran out
	// What of these is one and the same: errors of hooks may be of types that cannot be
	// compared.
	lastIsSpecific, lastIsRefusal, specificIsRefusal bool
}

// add takes in how an attempt failed, and reports whether it may have an effect
// yet. One that got no connection changes nothing of what the server had said before.
func (v *failure) add(err error, unsent bool) bool {
	fault, code := lua.Classify(err)
	v.last, v.lastIsSpecific, v.lastIsRefusal = err, !errors.Is(err, sender.ErrUnanswered) && !isEndOfContext(err), false
	defer func() {
		if v.lastIsSpecific {
			v.specific, v.specificIsRefusal = err, v.lastIsRefusal
		}
	}()
	v.unclear, v.closed = false, fault == lua.Closed
	switch {
	case errors.Is(err, errVoid):
		v.refused = nil
	case fault == lua.NotRun, fault == lua.Closed:
		// An error that no server sent is that of a connection. A hook may have had one of
		// its own, after the command ran.
		v.refused = nil
		fromServer := fault == lua.NotRun && code != ""
		return !fromServer && !unsent
	case fault == lua.Refused, fault == lua.Failed && unsent: // said to the login
		v.refused, v.lastIsRefusal = err, true
	case fault == lua.Failed, errors.Is(err, sender.ErrGoexit):
		v.refused = nil
		v.unclear, v.maybeApplied = true, v.maybeApplied || !unsent
		return !unsent
	case fault == lua.Unanswered:
		v.maybeApplied = v.maybeApplied || !unsent
		return true
	}
	return false
}

// isFinal reports whether there is no sense in another attempt.
func (v *failure) isFinal(c Operation) bool {
	return v.closed || !c.RetryRefused && (v.refused != nil || v.unclear)
}

func (v *failure) kind() error {
	switch {
	case v.maybeApplied:
		return lockerr.ErrIndeterminate
	case v.closed:
		return lockerr.ErrClosed
	case v.refused != nil:
		return lockerr.ErrRefused
	}
	return lockerr.ErrUnavailable
}

// cause is the cause to show beside the kind: what ended the call, or the last attempt's
// error where that is nil; what was wrong before if that one was only cut short; and a
// refusal if that is neither the kind nor the cause already.
func (v *failure) cause(end error) error {
	cause, tells, refuses := end, false, false
	if end == nil {
		cause, tells, refuses = v.last, v.lastIsSpecific, v.lastIsRefusal
	}
	if v.specific != nil && !tells {
		cause, refuses = joined.Errors(v.specific, cause), v.specificIsRefusal
	}
	if v.refused == nil {
		return cause
	}
	refusal := v.refused
	if v.maybeApplied {
		refusal = fmt.Errorf("%w: %w", lockerr.ErrRefused, refusal)
	}
	if refuses {
		return refusal
	}
	return joined.Errors(refusal, cause)
}

// failedEarlier is the error of a call that went wrong before its context ended, and not
// because of that end alone.
type failedEarlier struct{ error }

func (t failedEarlier) Unwrap() error { return t.error }

// unansweredAttempt is how an attempt ended that was not answered.
type unansweredAttempt struct {
	unsent    bool                     // nothing was written, nor will be
	abandoned *sender.AbandonedCommand // left behind; nil: not so
}

// runAttempt sends once and waits until it is answered, ctx ends, or limit has
// passed; then it is left behind. A client that closes
// waits for the answer as long as it may: a grant that is left behind could be granted
// after it was given back.
func runAttempt[T any](ctx context.Context, s *Session, c Operation, limit time.Duration, stays bool, voidAfter lua.Time, send func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (T, error)) (v T, how unansweredAttempt, err error) {
	var stop <-chan struct{}
	if c.StopOnClose {
		stop = s.tasks.context().Done()
	}
	a, began := s.sender.Attempt(limit, stop), time.Now()
	defer a.End()
	if stays {
		a.Stay()
	}
	v, err = send(ctx, s.withEval(a), voidAfter)
	how = unansweredAttempt{unsent: err != nil && a.Unsent(), abandoned: a.AbandonedCommand()}
	if how.abandoned != nil {
		s.abandonedAttempts.add()
		how.abandoned.OnEnd(func(err error) {
			s.onLateAnswer(err, time.Since(began))
			s.abandonedAttempts.done()
		})
	}
	if how.unsent && !isClosed(err) {
		err = joined.Errors(err, errUnsent)
	}
	return v, how, err
}

// closeSignal is closed when the call has to give up because the client closes.
func (s *Session) closeSignal(c Operation) <-chan struct{} {
	if c.StopOnClose {
		return s.closing.Done()
	}
	return nil
}

// panicked is the error of an attempt that panicked. The panic is not passed on to the
// caller, which may have left or may be a goroutine of the library, and which has to give
// back what the command got. Only the first one is logged, with its stack: a release that
// is tried again would fill the log.
func (s *Session) panicked(p any) error {
	if s.panicLogged.CompareAndSwap(false, true) {
		s.Write(slog.LevelError, "redlatch: a command panicked",
			slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	}
	return fmt.Errorf("%w: panic: %v", sender.ErrGoexit, p)
}

// errUnsent is beside the error of an attempt that got no connection.
var errUnsent = errors.New("no connection in time")

// errVoid is a command that came after its end: the server's clock was not
// known yet, or was set.
var errVoid = errors.New("the server's clock is ahead of the guess")

// CheckReply takes the server's clock from a reply. The error it returns for a void
// command makes Do send it again, with an end that fits.
func (s *Session) CheckReply(status lua.Status, now lua.Time) error {
	s.clock.set(now)
	if status == lua.Void {
		return errVoid
	}
	return nil
}

// backoff waits before the next attempt: longer each time, and by chance, so that
// many waiters do not come back to a recovering server all at once. It reports
// whether there may be one.
func (s *Session) backoff(ctx context.Context, c Operation, tries int) bool {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	d := min(first<<min(tries, 10), most)
	if c.MaxBackoff > 0 {
		d = min(d, c.MaxBackoff)
	}
	d = d/2 + rand.N(d/2)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-s.closeSignal(c):
	}
	return false
}

// opError is the error of a call that gives up.
func (c Operation) opError(ctx context.Context, s *Session, kind, err error) error {
	if c.StopOnClose && s.IsClosing() {
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: c.Op, Name: c.Name}
	}
	return &lockerr.OpError{Kind: kind, Op: c.Op, Name: c.Name, Err: joined.Errors(Cause(ctx), hideTimeout(err))}
}
