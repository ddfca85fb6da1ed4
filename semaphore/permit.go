package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// Permit is some units of a semaphore, until Release or its loss. Methods may be called
// concurrently, and by another goroutine than the one that acquired it.
//
// If a permit becomes garbage without Release, the client logs an error and stops renewing it. So
// its units become free when its lease ends. The context of a permit keeps it from becoming
// garbage. So do contexts derived from that context with a cancel function, and functions
// registered with context.AfterFunc, until they end.
//
// A nil *Permit, or one that no semaphore made, is not held. Its Release returns ErrNotHeld, so it
// can be deferred. Trusted is false, Lost is closed, Context and those of Bind have ended, and the
// rest is zero.
type Permit struct {
	hold  *lock.Hold
	units int
}

// Name returns the name of the semaphore.
func (p *Permit) Name() string { return p.holdOrNil().Name() }

// ID returns the id under which Redis knows this permit: <client id>:<n>. Inspect shows it, and
// ForceRelease takes it.
func (p *Permit) ID() string { return p.holdOrNil().ID() }

// Units returns how many units the permit has.
func (p *Permit) Units() int {
	if p == nil {
		return 0
	}
	return p.units
}

// holdOrNil returns the hold behind the permit; a nil hold is one that is not held.
func (p *Permit) holdOrNil() *lock.Hold {
	if p == nil {
		return nil
	}
	return p.hold
}

// Lost returns a channel that is closed when the permit ends without Release. That is no later than
// the end of trust in the permit, whether Redis answers or not. So it is before the server gives
// the units away. Closing the client closes the channel too. It stops nobody's work; see Context
// for that.
func (p *Permit) Lost() <-chan struct{} { return p.holdOrNil().Lost() }

// TrustedUntil returns the time when trust in the lease ends, unless the watchdog renews the lease
// before. It is always earlier than the end of the lease in Redis. It is zero once Release, or
// closing the client, has begun.
func (p *Permit) TrustedUntil() time.Time { return p.holdOrNil().TrustedUntil() }

// Trusted reports whether the permit can be relied on at this moment, by the monotonic clock and by
// the wall clock. It sends no command.
func (p *Permit) Trusted() bool { return p.holdOrNil().Trusted() }

// Context returns a context for the work under the permit. It has the values of the context that
// the permit was acquired with, but not its deadline or its cancel, because those bound the wait.
// The context ends when the permit does. context.Cause is then a *lockerr.LostError,
// lockerr.ErrClosed, or an error that says that the permit was released.
func (p *Permit) Context() context.Context { return p.holdOrNil().Context() }

// Bind returns a child of parent that also ends when the permit does. It is for work that must stop
// both when its caller gives up and when the permit is lost. Context outlives the caller; Bind does
// not. The child has the deadline and the values of parent. context.Cause says what ended it: the
// cause of parent, or that of Context.
//
// Call cancel when the work is done, as for context.WithCancel. It ends the child, and not the
// permit. Until then, or until parent ends, the child keeps the permit from becoming garbage. Bind
// sends no command. It panics if parent is nil.
func (p *Permit) Bind(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	return p.holdOrNil().Bind(parent)
}

// ReportProgress says that the work under the permit goes on. With redlatch.WithProgressTimeout,
// the client renews the permit only while the work says so in time. If it was late and the permit
// is not lost yet, ReportProgress makes the client renew it now. Without WithProgressTimeout, and
// after the end of the permit, it does nothing. It sends no command unless it was late.
func (p *Permit) ReportProgress() { p.holdOrNil().ReportProgress() }

// Release releases all units of the permit. They go to the first waiters that now fit.
//
// Release waits until Redis has answered, ctx ends, or trust in the lease ends, whichever is first.
// Until then it retries after a failure or a refusal. One command gets its time in any case, a few
// seconds at most. If ctx has already ended, that is all the time there is: an ended context is no
// reason not to release.
//
// On success the permit is released and its context has ended. Errors:
//   - lockerr.ErrLost: the permit ended before, although its holder had not released it. Nothing
//     was changed in Redis. Another Release returns the same error.
//   - lockerr.ErrNotHeld: it was released before. Nothing was changed: the capacity never grows by
//     releasing twice.
//   - lockerr.ErrClosed: the client was closed and has released it. With redis.ErrClosed beside it,
//     the go-redis client was closed, and the permit is left to its lease.
//   - lockerr.ErrIndeterminate, ErrUnavailable, ErrRefused: Redis did not confirm the release. The
//     client goes on trying in the background, without renewal. Release may be called again. It
//     succeeds if the permit has been released by then, or has ended otherwise.
//
// Release costs one round trip. It serves fifty waiters at most; one more command for each fifty
// that are left follows in the background. It first stops the renewal. It waits for a renewal that
// is in flight, but not for one that hangs.
func (p *Permit) Release(ctx context.Context) error {
	if p.holdOrNil() == nil {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: opRelease}
	}
	return p.hold.Unlock(ctx)
}

// ReleaseAfter releases the permit, but Redis keeps its units for d from now on, as if somebody had
// them. Nobody renews them. So no work of any process begins with them too soon, even if this
// process ends. The waiters notice the end of d like the end of a lease. ForceRelease ends it.
// Inside of Do, the function calls it on the permit that [Semaphore.PermitFrom] returns, and Do
// then leaves the permit alone.
//
// ReleaseAfter waits as Release does, costs one round trip, and returns the errors of Release. It
// also returns lockerr.ErrConfig if d is below a millisecond, above a year, or not in whole
// milliseconds. If Redis did not confirm it, the units become free after d, or with the lease,
// unless a later Release or ReleaseAfter succeeds. That keeps the units too, for the longest time
// asked for. If the permit has ended meanwhile, that call returns lockerr.ErrLost, unless Redis had
// kept it for the requested time. If a Release that had failed has freed the units after all, the
// call returns lockerr.ErrNotHeld.
func (p *Permit) ReleaseAfter(ctx context.Context, d time.Duration) error {
	if p.holdOrNil() == nil {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: opRelease + " after"}
	}
	return p.hold.UnlockAfter(ctx, d)
}
