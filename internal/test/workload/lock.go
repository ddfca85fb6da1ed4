package workload

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/semaphore"
)

// Lock is one lock of one client. The context carries the owner.
type Lock interface {
	Lock(ctx context.Context) (Hold, error)
	TryLock(ctx context.Context) (Hold, error)
}

// Units is a Lock of which an actor takes more or less units, as a step says.
type Units interface {
	Lock
	// Of returns the lock that takes the given number of units.
	Of(units int) Lock
	Resize(ctx context.Context, limit int) error
}

// Hold is one successful acquire.
type Hold interface {
	ID() string
	Fence() int64
	Lost() <-chan struct{}
	TrustedUntil() time.Time
	Unlock(ctx context.Context) error
}

// Keeping is a Hold after whose end Redis keeps the lock for d.
type Keeping interface {
	UnlockAfter(ctx context.Context, d time.Duration) error
}

// Exporting is a Hold that goes on as another one. The text is for Attaching.
type Exporting interface {
	Export(ctx context.Context, within time.Duration) (text string, err error)
}

// Attaching is a Lock that goes on with an exported hold.
type Attaching interface {
	Attach(ctx context.Context, text string) (Hold, error)
}

// Nesting is a Hold whose context continues the chain of its owner.
type Nesting interface {
	Context() context.Context
}

// locker is the interface of the mutexes of this module.
type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	TryLock(ctx context.Context) (*lock.Hold, error)
	Attach(ctx context.Context, text string) (*lock.Hold, error)
}

// Of makes a Lock of a mutex of this module.
func Of(l locker) Lock { return ours{l} }

type ours struct{ locker }

func (o ours) Lock(ctx context.Context) (Hold, error)    { return asHold(o.locker.Lock(ctx)) }
func (o ours) TryLock(ctx context.Context) (Hold, error) { return asHold(o.locker.TryLock(ctx)) }

func (o ours) Attach(ctx context.Context, text string) (Hold, error) {
	return asHold(o.locker.Attach(ctx, text))
}

// asHold keeps a nil hold from becoming an interface that is not nil.
func asHold(h *lock.Hold, err error) (Hold, error) {
	if h == nil {
		return nil, err
	}
	return h, err
}

// Permits makes a Lock of a semaphore. It takes one unit at a time, unless a step says otherwise.
func Permits(s *semaphore.Semaphore) Units { return permits{s, 1} }

type permits struct {
	semaphore *semaphore.Semaphore
	units     int
}

func (p permits) Of(units int) Lock { return permits{p.semaphore, units} }

func (p permits) Lock(ctx context.Context) (Hold, error) {
	return asPermit(p.semaphore.Acquire(ctx, p.units))
}

func (p permits) TryLock(ctx context.Context) (Hold, error) {
	return asPermit(p.semaphore.TryAcquire(ctx, p.units))
}

func (p permits) Resize(ctx context.Context, limit int) error {
	_, err := p.semaphore.Resize(ctx, limit)
	return err
}

func asPermit(p *semaphore.Permit, err error) (Hold, error) {
	if p == nil {
		return nil, err
	}
	return permit{p}, err
}

// permit is a hold without a fence.
type permit struct{ *semaphore.Permit }

func (permit) Fence() int64                       { return 0 }
func (p permit) Unlock(ctx context.Context) error { return p.Release(ctx) }

func (p permit) UnlockAfter(ctx context.Context, d time.Duration) error {
	return p.ReleaseAfter(ctx, d)
}

// Meaning reads the error of a call, which is never nil. The second result says that the client has
// closed. The actor ends then.
type Meaning func(kind history.Kind, err error) (outcome history.Outcome, over bool)

// Redlatch reads the errors of this module. It relies on the documentation: if an error means that
// nothing changed, nothing must have changed.
func Redlatch(_ history.Kind, err error) (outcome history.Outcome, over bool) {
	var busy *lockerr.NotAcquiredError
	var limits *lockerr.LimitError
	var failed *lockerr.OpError
	switch {
	case errors.As(err, &limits):
		return history.TooMany, false
	case errors.Is(err, lockerr.ErrClosed): // an acquire may have been granted, a release may be in flight
		return history.Unknown, true
	case errors.Is(err, lockerr.ErrIndeterminate):
		return history.Unknown, false
	case errors.Is(err, lockerr.ErrLost), errors.Is(err, lockerr.ErrNotHeld): // actors unlock once
		return history.Lost, false
	case errors.Is(err, lockerr.ErrRemoved):
		return history.Removed, false
	case errors.As(err, &busy) && (busy.Holder != "" || busy.Limit != 0):
		return history.Refused, false
	case errors.As(err, &busy): // it waited for the right to ask, so nobody knows who holds the lock
		return history.Nothing, false
	case errors.Is(err, lockerr.ErrUnavailable), errors.Is(err, lockerr.ErrRefused):
		return history.Nothing, false
	case errors.As(err, &failed) && failed.Kind == nil: // ctx had ended before any attempt
		return history.Nothing, false
	}
	return history.Unknown, false
}
