package workload

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// Lock is one lock as one client has it. The context carries the owner.
type Lock interface {
	Lock(ctx context.Context) (Hold, error)
	TryLock(ctx context.Context) (Hold, error)
}

// Hold is one successful acquire.
type Hold interface {
	Acquisition() string
	Fence() int64
	Lost() <-chan struct{}
	TrustedUntil() time.Time
	Unlock(ctx context.Context) error
}

// locker is what the mutexes of this module are.
type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	TryLock(ctx context.Context) (*lock.Hold, error)
}

// Of makes a Lock of a mutex of this module.
func Of(l locker) Lock { return ours{l} }

type ours struct{ locker }

func (o ours) Lock(ctx context.Context) (Hold, error)    { return asHold(o.locker.Lock(ctx)) }
func (o ours) TryLock(ctx context.Context) (Hold, error) { return asHold(o.locker.TryLock(ctx)) }

// asHold keeps a nil hold from becoming an interface that is not nil.
func asHold(h *lock.Hold, err error) (Hold, error) {
	if h == nil {
		return nil, err
	}
	return h, err
}

// Meaning reads the error of a call; nil never gets there. The second value
// says that the client has closed, after which an actor ends.
type Meaning func(kind history.Kind, err error) (outcome history.Outcome, over bool)

// Redlatch reads the errors of this module. It takes the documentation at its
// word: what is said to have changed nothing must have changed nothing.
func Redlatch(_ history.Kind, err error) (outcome history.Outcome, over bool) {
	var busy *lockerr.NotAcquiredError
	switch {
	case errors.Is(err, lockerr.ErrClosed): // an acquire may have been granted, a release be under way
		return history.Unknown, true
	case errors.Is(err, lockerr.ErrIndeterminate):
		return history.Unknown, false
	case errors.Is(err, lockerr.ErrLost), errors.Is(err, lockerr.ErrNotHeld): // actors unlock once
		return history.Lost, false
	case errors.As(err, &busy) && busy.Holder != "":
		return history.Refused, false
	case errors.As(err, &busy): // it waited for its turn to ask, and nobody can say what for
		return history.Nothing, false
	case errors.Is(err, lockerr.ErrUnavailable), errors.Is(err, lockerr.ErrRefused):
		return history.Nothing, false
	}
	return history.Unknown, false
}
