package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// Permit is some units of a semaphore, until Release or its loss. Methods may be
// called concurrently, and by another goroutine than the one that acquired it.
//
// A permit that becomes garbage without Release is reported as an error in the log
// and not renewed any more, so that its units come back with the end of its lease.
// Its context keeps it from being garbage, as do, until they end, contexts derived from it
// with a cancel function, and functions registered with context.AfterFunc.
//
// A nil *Permit, or one that no semaphore made, is not held. Release says so, so that it
// can be deferred; Trusted is false, Lost is closed, Context has ended, and the rest is zero.
type Permit struct {
	hold  *lock.Hold
	units int
}

// Name is the name of the semaphore.
func (p *Permit) Name() string { return p.held().Name() }

// ID is the id under which Redis knows this permit: <client id>:<n>. Inspect shows
// it, and ForceRelease takes it.
func (p *Permit) ID() string { return p.held().Acquisition() }

// Units is how many units it has.
func (p *Permit) Units() int {
	if p == nil {
		return 0
	}
	return p.units
}

// held is the hold behind the permit; a nil hold is one that is not held.
func (p *Permit) held() *lock.Hold {
	if p == nil {
		return nil
	}
	return p.hold
}

// Lost is closed when the permit ended without Release: no later than trust in it
// ends, and so before the server gives its units away, whether Redis answers or
// not. Closing the client closes it too. Nobody's work is stopped by it; see
// Context for that.
func (p *Permit) Lost() <-chan struct{} { return p.held().Lost() }

// TrustedUntil is when trust in the lease ends unless it is renewed before, which
// the watchdog does. It is always earlier than the end of the lease in Redis. It is
// zero once Release, or closing the client, has begun.
func (p *Permit) TrustedUntil() time.Time { return p.held().TrustedUntil() }

// Trusted reports whether the permit can be relied on at this moment, by the
// monotonic clock and by the wall clock. It asks nobody.
func (p *Permit) Trusted() bool { return p.held().Trusted() }

// Context returns a context for the work under the permit. It has the values of
// the context that the permit was acquired with, but not its deadline nor its
// cancel: those bound the wait. It ends when the permit does; context.Cause then is
// a *lockerr.LostError, lockerr.ErrClosed, or says that it was released.
func (p *Permit) Context() context.Context { return p.held().Context() }

// Release gives all its units back, which go to the first waiters that now fit.
//
// It waits until Redis has answered, ctx ends, or trust in the lease does, whichever
// is first; what fails or is refused is tried again until then. One command has its
// time in any case, a few seconds at most; that is all the time there is when ctx is
// already over, which is no reason not to release.
//
// On success the permit is released and its context has ended. Errors:
//   - lockerr.ErrLost: the permit ended before, without our asking. Nothing was
//     changed in Redis. Releasing again says the same.
//   - lockerr.ErrNotHeld: it was released before. Nothing was changed: the
//     capacity never grows by releasing twice.
//   - lockerr.ErrClosed: the client was closed and has released it. With
//     redis.ErrClosed beside it, the go-redis client was closed, and the permit is
//     left to its lease.
//   - lockerr.ErrIndeterminate, ErrUnavailable, ErrRefused: Redis did not say that
//     it is released. The release is tried on in the background, without renewal,
//     and Release may be called again. It succeeds when the permit is released by
//     then, or has ended otherwise.
//
// Release costs one round trip. It serves fifty waiters at most; one more command for each
// fifty that are left follows in the background. It stops the renewal first and waits for one that is under way, though
// not for one that hangs.
func (p *Permit) Release(ctx context.Context) error {
	if p.held() == nil {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: opRelease}
	}
	return p.hold.Unlock(ctx)
}
