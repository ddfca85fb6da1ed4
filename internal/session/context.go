package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/lockerr"
)

// CheckContext refuses a context that is missing, before anything is counted or asked.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return &lockerr.ConfigError{Setting: "context", Value: nil, Reason: "must not be nil"}
	}
	return nil
}

// TouchContext calls every method of a context, for a call that must not begin when one of
// them panics, as those of a typed nil do.
func TouchContext(ctx context.Context) {
	_, _ = ctx.Deadline()
	_, _, _ = ctx.Done(), ctx.Err(), ctx.Value(touchKey{})
}

// touchKey is a key that no context has.
type touchKey struct{}

// ownDeadline is the cause of an end that redlatch itself gives to a context, and what errors
// say instead of that end.
type ownDeadline struct {
	why         string
	callerCause error // why the caller's context has ended; nil if it has not
}

func (l ownDeadline) Error() string { return l.why }
func (l ownDeadline) Unwrap() error { return l.callerCause }

// WithDeadlineReason returns a context that ends at that instant. Errors then say why, and do
// not match context.DeadlineExceeded: the caller has set no deadline.
func WithDeadlineReason(ctx context.Context, end time.Time, why string) (context.Context, context.CancelFunc) {
	endless := ctx.Done() == nil
	ctx, cancel := context.WithDeadlineCause(ctx, end, ownDeadline{why: why})
	if endless {
		ctx = lasting{ctx, end}
	}
	return ctx, cancel
}

// lasting is a context that nobody ends before that instant.
type lasting struct {
	context.Context
	end time.Time
}

// lasts reports whether nobody ends ctx for d from now.
func lasts(ctx context.Context, d time.Duration) bool {
	if l, ok := ctx.(lasting); ok {
		return time.Until(l.end) >= d
	}
	return ctx.Done() == nil
}

// DetachedWithTimeout returns a context for what is to be done within d though ctx has ended.
func DetachedWithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	cause := ownDeadline{why: "gave up after " + d.String() + ", of a context that had ended before: " + Cause(ctx).Error(), callerCause: Cause(ctx)}
	return context.WithTimeoutCause(context.WithoutCancel(ctx), d, cause)
}

// WithDefaultTimeout bounds an operation that does not wait for a lock, where its caller sets no
// end: it goes on trying to reach Redis for a few seconds.
func WithDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return WithDeadlineReason(ctx, time.Now().Add(5*time.Second), "gave up after 5s")
}

// WithoutOwnCancel returns a context that ends with ctx, and of whose end errors say what
// they would of that of ctx. But where ctx ends because of the very call that uses it, which
// isOwn finds out from the cause of ctx, the result goes on until the deadline of ctx.
// Nobody can tell whether ctx would have been cancelled after that.
func WithoutOwnCancel(ctx context.Context, isOwn func(cause error) bool) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	outlasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func(cause error) { cancel(ownDeadline{why: cause.Error(), callerCause: cause}) }
	stop := context.AfterFunc(ctx, func() {
		if !isOwn(context.Cause(ctx)) {
			end(Cause(ctx))
		} else if deadline, ok := ctx.Deadline(); ok {
			timer := time.AfterFunc(time.Until(deadline), func() { end(context.DeadlineExceeded) })
			context.AfterFunc(outlasting, func() { timer.Stop() })
		}
	})
	return outlasting, func() { stop(); cancel(nil) }
}

// Cause is why ctx ended, in a form that matches both ctx.Err() and the cause
// given by whoever ended it; see foreign for what it does not match. Nil while ctx lives.
func Cause(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if own, ok := cause.(ownDeadline); ok { //nolint:errorlint // one inside of a cause is of another call
		return own
	}
	if errors.Is(cause, err) {
		return &foreignCause{cause}
	}
	return joined.Errors(err, &foreignCause{cause})
}

// CauseFor is Cause for a call that takes the lock of that name: where ctx ended because
// this very lock was lost, it matches lockerr.ErrLost too.
func CauseFor(ctx context.Context, name string) error {
	var lost *lockerr.LostError
	if errors.As(context.Cause(ctx), &lost) && lost.Name == name {
		return joined.Errors(ctx.Err(), lost)
	}
	return Cause(ctx)
}

// foreignCause is the cause with which somebody else ended a context. An error of redlatch
// inside of it says what happened to another call or lock: that one was lost, for
// instance, and cancelled the context of its hold. It is shown, and errors.Is and
// errors.As do not find it.
type foreignCause struct{ cause error }

func (f *foreignCause) Error() string { return joined.OneLine(f.cause.Error()) }

func (f *foreignCause) Is(target error) bool {
	return !slices.Contains(operationErrors, target) && errors.Is(f.cause, target)
}

func (f *foreignCause) As(target any) bool {
	switch target.(type) {
	case **lockerr.OpError, **lockerr.NotAcquiredError, **lockerr.LostError, **lockerr.LimitError, **lockerr.ConfigError, *failedEarlier:
		return false
	}
	return errors.As(f.cause, target)
}

// operationErrors are the errors that say what became of one call.
var operationErrors = []error{
	lockerr.ErrNotAcquired, lockerr.ErrRemoved, lockerr.ErrLost, lockerr.ErrNotHeld, lockerr.ErrIndeterminate,
	lockerr.ErrUnavailable, lockerr.ErrRefused, lockerr.ErrClosed, lockerr.ErrConfig, ErrWindowExpired,
}

// hideTimeout hides from errors.Is that an attempt ran out of the time it was given
// here. That the caller's context has ended is said by Cause.
func hideTimeout(err error) error {
	if isEndOfContext(err) {
		return hiddenTimeout{err}
	}
	return err
}

func isEndOfContext(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

type hiddenTimeout struct{ err error }

func (t hiddenTimeout) Error() string { return t.err.Error() }

// Is matches what the error matches, but for the ends of contexts.
func (t hiddenTimeout) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(t.err, target)
}

// As finds what the error has inside.
func (t hiddenTimeout) As(target any) bool { return errors.As(t.err, target) }
