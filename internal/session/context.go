package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// CheckContext returns an error if ctx is nil. A call checks this before it does anything else.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return &lockerr.ConfigError{Setting: "context", Value: nil, Reason: "must not be nil"}
	}
	return nil
}

// TouchContext calls every method of ctx, for a call that must not begin if one of them panics. The
// methods of a typed nil do, for example.
func TouchContext(ctx context.Context) {
	_, _ = ctx.Deadline()
	_, _, _ = ctx.Done(), ctx.Err(), ctx.Value(touchKey{})
}

// touchKey is a key that no context has.
type touchKey struct{}

// ownDeadline is the cause with which redlatch itself ends a context. Errors show it instead of
// context.DeadlineExceeded or context.Canceled.
type ownDeadline struct {
	why         string
	callerCause error // why the caller's context has ended; nil if it has not
}

func (l ownDeadline) Error() string { return l.why }
func (l ownDeadline) Unwrap() error { return l.callerCause }

// DetachedWithTimeout returns a context that ends after d, for work that goes on after the end of
// ctx. ctx must have ended.
func DetachedWithTimeout(ctx context.Context, d time.Duration) *Bounded {
	cause := Cause(ctx)
	return &Bounded{
		Context: context.WithoutCancel(ctx), end: time.Now().Add(d), callerCause: cause,
		why: "gave up after " + d.String() + ", of a context that had ended before: " + cause.Error(),
	}
}

// WithDefaultTimeout returns a context that ends with ctx, and after five seconds at the latest. It
// is for an operation that does not wait for a lock. The operation retries for that long if it
// cannot reach Redis.
func WithDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return WithDeadlineReason(ctx, time.Now().Add(defaultTimeout), "gave up after "+defaultTimeout.String())
}

const defaultTimeout = 5 * time.Second

// OperatorContext is WithDefaultTimeout for an operator who changes something. Workers send it. The
// answer to an attempt may then take as long as the attempt may, and not only sender.DirectFor: the
// answer to a second attempt would not say what the first one did.
func OperatorContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return WithDefaultTimeout(ByWorker(ctx))
}

// WaitContext returns the context for the commands of a call that acquires a lock. It ends with
// ctx, and after the wait timeout, unless that is 0. A wait also ends at the wait deadline of ctx.
// For a try it ends after five seconds at the latest.
func WaitContext(ctx context.Context, try bool, timeout time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := waitDeadline(ctx); ok && !try {
		return untilWaitDeadline(ctx, deadline, timeout)
	}
	switch {
	case try && (timeout == 0 || timeout > defaultTimeout):
		return WithDefaultTimeout(ctx)
	case timeout > 0:
		return WithDeadlineReason(ctx, time.Now().Add(timeout), timeoutReason(timeout))
	}
	return ctx, func() {}
}

func timeoutReason(timeout time.Duration) string {
	return "gave up after " + timeout.String() + " (WithWaitTimeout)"
}

// Cause returns why ctx ended, or nil if it has not. The error matches ctx.Err(), and the cause
// with which somebody ended ctx, except for the errors that foreignCause hides. If redlatch ended
// ctx, the error is the reason that redlatch gave.
func Cause(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := causeOf(ctx)
	if own, ok := cause.(ownDeadline); ok { //nolint:errorlint // one inside of a cause is of another call
		return own
	}
	if errors.Is(cause, err) {
		return &foreignCause{cause}
	}
	return oneline.Errors(err, &foreignCause{cause})
}

// EndedByOwnLimit reports whether a time limit of redlatch ended ctx, and not the caller.
func EndedByOwnLimit(ctx context.Context) bool {
	own, ok := causeOf(ctx).(ownDeadline) //nolint:errorlint // one inside of a cause is of another call
	return ok && own.callerCause == nil
}

// isOver reports whether ctx has ended, or is about to: its deadline has passed, and its timer is
// late.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// CauseFor is Cause for a call that takes the lock with this name. If ctx ended because this same
// lock was lost, the error also matches lockerr.ErrLost.
func CauseFor(ctx context.Context, name string) error {
	var lost *lockerr.LostError
	if errors.As(context.Cause(ctx), &lost) && lost.Name == name && !lost.IsPermit {
		return oneline.Errors(ctx.Err(), lost)
	}
	return Cause(ctx)
}

// foreignCause is the cause with which somebody else ended a context. An error of redlatch inside
// the cause describes another call or lock. For example, a lost lock cancels the context of its
// hold. The text of foreignCause contains such an error, but errors.Is and errors.As do not find
// it.
type foreignCause struct{ cause error }

func (f *foreignCause) Error() string { return oneline.OneLine(f.cause.Error()) }

func (f *foreignCause) Is(target error) bool {
	return !slices.Contains(operationErrors, target) && errors.Is(f.cause, target)
}

func (f *foreignCause) As(target any) bool {
	switch target.(type) {
	case **lockerr.OpError, **lockerr.NotAcquiredError, **lockerr.NotReplicatedError, **lockerr.LostError, **lockerr.LimitError, **lockerr.ConfigError, *failedEarlier:
		return false
	}
	return errors.As(f.cause, target)
}

// operationErrors are the errors that describe the result of one call.
var operationErrors = []error{
	lockerr.ErrNotAcquired, lockerr.ErrNotReplicated, lockerr.ErrRemoved, lockerr.ErrLost, lockerr.ErrNotHeld, lockerr.ErrIndeterminate,
	lockerr.ErrUnavailable, lockerr.ErrRefused, lockerr.ErrClosed, lockerr.ErrConfig, ErrWindowExpired,
}

// hideTimeout hides context.DeadlineExceeded and context.Canceled in err from errors.Is. They say
// only that an attempt ran out of the time that redlatch gave it. Cause says whether the caller's
// context has ended.
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

// Is matches what the hidden error matches, except for the ends of contexts.
func (t hiddenTimeout) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(t.err, target)
}

// As finds what the hidden error contains.
func (t hiddenTimeout) As(target any) bool { return errors.As(t.err, target) }
