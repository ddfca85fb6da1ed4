package lock

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lockerr"
)

// Hold is one successful acquire of a lock. Every hold needs its own Unlock. After one of several
// holds of the same owner is unlocked, in whichever order, the lock is still held. Methods may be
// called concurrently.
//
// If a hold becomes garbage without Unlock, the client logs an error and stops renewing it. The
// context of a hold keeps it from becoming garbage. So do contexts derived from that context with a
// cancel function, and functions registered with context.AfterFunc, until they end. They wait for
// the end of the hold, so cancel or stop them.
//
// A nil *Hold, or one that no lock made, is not held. Its Unlock returns ErrNotHeld, so it can be
// deferred. Trusted is false, Lost is closed, Context and those of Bind have ended, and the rest is
// zero.
type Hold struct {
	inner   *acquisition.Hold
	parent  context.Context // of Context; ended neither by deadline nor cancel
	cleanup runtime.Cleanup

	derived atomic.Pointer[context.Context] // the context that the acquisition ends; nil before the first call of Context
}

func init() {
	acquisition.NewHandle = func(ctx context.Context, inner *acquisition.Hold) any { return newHold(ctx, inner) }
}

// newHold makes the user's handle of a hold.
func newHold(ctx context.Context, inner *acquisition.Hold) *Hold {
	h := &Hold{inner: inner, parent: ctx}
	h.cleanup = runtime.AddCleanup(h, (*acquisition.Hold).HandleCollected, inner)
	return h
}

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.grant().Name }

// ID returns the id under which Redis knows this grant: <client id>:<n>. Holds that re-entered
// share it.
func (h *Hold) ID() string { return h.grant().ID }

// Fence returns the number of this grant. It is larger than that of every earlier grant of the
// name. Holds that re-entered share it. Send it with each write to a resource that rejects fences
// smaller than the largest it has seen. Inside of Do, [FromContext] returns the hold.
func (h *Hold) Fence() int64 { return h.grant().Fence }

func (h *Hold) grant() *acquisition.Grant {
	if !h.isValid() {
		return &acquisition.Grant{}
	}
	return &h.inner.A.Grant
}

func (h *Hold) isValid() bool { return h != nil && h.inner != nil }

// notHeld is the context of a hold that no lock made.
var notHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "hold"})
	return ctx
}()

// Lost returns a channel that is closed when the hold ends without Unlock. That is no later than
// the end of trust in the hold, whether Redis answers or not. Closing the client closes the channel
// too. It stops nobody's work; see Context for that.
func (h *Hold) Lost() <-chan struct{} {
	if !h.isValid() {
		return notHeld.Done()
	}
	return h.inner.Lost()
}

// TrustedUntil returns the time when trust in the lease ends, unless the watchdog renews the lease
// before. It is always earlier than the end of the lease in Redis: it counts from the instant
// before the last successful command was sent, less a margin. It is zero once Unlock, or closing
// the client, has begun.
func (h *Hold) TrustedUntil() time.Time {
	if !h.isValid() {
		return time.Time{}
	}
	return h.inner.TrustedUntil()
}

// Trusted reports whether the hold can be relied on at this moment, by the monotonic clock and by
// the wall clock. Unlike the monotonic clock, the wall clock goes on while a machine is suspended.
// Trusted is false once Unlock, or closing the client, has begun, even if other holds of the owner
// remain. It sends no command.
func (h *Hold) Trusted() bool { return h.isValid() && h.inner.Trusted() }

// Context returns a context for the work under the lock. It has the values of the context that the
// lock was acquired with, but not its deadline or its cancel, because those bound the wait. It
// re-enters the lock, and the locks under whose contexts the lock was acquired. Goroutines that
// share it exclude each other from all other locks, but not from these.
//
// The context ends when the hold does. context.Cause is then a *lockerr.LostError,
// lockerr.ErrClosed, or an error that says that the hold was released.
func (h *Hold) Context() context.Context {
	if !h.isValid() {
		return notHeld
	}
	if h.derived.Load() == nil {
		derived := h.inner.Derive(context.WithoutCancel(h.parent))
		h.derived.CompareAndSwap(nil, &derived)
	}
	return keepAlive{Context: *h.derived.Load(), hold: h}
}

// Bind returns a child of parent that also ends when the hold does. It is for work that must stop
// both when its caller gives up and when the lock is lost, such as that of an HTTP handler. Context
// outlives the caller; Bind does not.
//
// The child has the deadline and the values of parent, and re-enters what parent re-enters, and
// what Context re-enters. Locks that are acquired with it belong to it, even if parent is of
// redlatch.WithOwner. context.Cause says what ended it: the cause of parent, or that of Context.
//
// Call cancel when the work is done, as for context.WithCancel. It ends the child, and not the
// hold. Until then, or until parent ends, the child keeps the hold from becoming garbage. Bind
// sends no command. It panics if parent is nil.
func (h *Hold) Bind(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	if parent == nil {
		panic("redlatch: Bind: the context must not be nil")
	}
	if !h.isValid() {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(context.Cause(notHeld))
		return ctx, func() {}
	}
	k := keepAlive{hold: h}
	if innermost := h.parent.Value(innermostKey{}); innermost != nil && innermost != parent.Value(innermostKey{}) {
		k.own = h.parent
	}
	k.Context, cancel = h.inner.Bind(parent)
	return k, cancel
}

// ReportProgress says that the work under the lock goes on. With redlatch.WithProgressTimeout, the
// client renews the lock only while the work says so in time. If it was late and the lock is not
// lost yet, ReportProgress makes the client renew it now. Any hold of the lock may report. Without
// WithProgressTimeout, and after the end of the hold, it does nothing. It sends no
// command unless it was late.
func (h *Hold) ReportProgress() {
	if h.isValid() {
		h.inner.ReportProgress()
	}
}

// Unlock releases the hold. With the last hold of its owner, it releases the lock.
//
// Unlock waits until Redis has answered, ctx ends, or trust in the lease ends, whichever is first.
// Until then it retries after a failure or a refusal. One command gets its time in any case, a few
// seconds at most. If ctx has already ended, that is all the time there is: an ended context is no
// reason not to unlock.
//
// On success the hold is released and its context has ended. Errors:
//   - lockerr.ErrLost: the lock ended before, although its holder had not released it. Nothing was
//     changed in Redis. Another Unlock returns the same error.
//   - lockerr.ErrNotHeld: this hold was released before. Nothing was changed.
//   - lockerr.ErrClosed: the client was closed and has released it, or has tried to. The error of
//     Close says what it could not release. With redis.ErrClosed beside it, the go-redis client was
//     closed, and the lock is left to its lease.
//   - lockerr.ErrIndeterminate, ErrUnavailable, ErrRefused: Redis did not confirm the release. The
//     client goes on trying in the background. It does not renew the lock, unless another command
//     of the lock is still in flight. Unlock may be called again. It succeeds if the lock has been
//     released by then, or has ended otherwise. If other holds are left, this one is released all
//     the same: only the number in Redis is late.
//
// Unlock costs one round trip. It first stops the renewal. It waits for a renewal that is in
// flight, but not for one that hangs.
func (h *Hold) Unlock(ctx context.Context) error {
	if !h.isValid() {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "unlock"}
	}
	defer runtime.KeepAlive(h)
	return h.unlocked(h.inner.Unlock(ctx))
}

// unlocked returns the error of an unlock. If the hold has ended, nobody waits for its handle to
// become garbage any more.
func (h *Hold) unlocked(err error) error {
	if err == nil || errors.Is(err, lockerr.ErrLost) {
		h.cleanup.Stop()
	}
	return err
}

// UnlockAfter releases the hold, but Redis keeps the lock for d from now on, as if somebody held
// it. Nobody renews it. So no process repeats a finished job too soon, even if this process ends. d
// may be longer than the lease. So the lease can stay short, in case a holder crashes.
//
// If other holds of the owner remain, the lock is kept for d when the last of them is released. Of
// several times, the longest counts. To skip work that was done a moment ago, others must use TryDo
// or TryLock: Lock and Do wait for the end of d, and then run. Waiters notice that end at their
// next poll or heartbeat at the latest. Inspect shows until then that the lock is kept.
// ForceRelease ends it. Inside of Do, the function calls UnlockAfter on its hold, and Do then does
// not unlock.
//
// UnlockAfter waits as Unlock does, costs one round trip, and returns the errors of Unlock. It also
// returns lockerr.ErrConfig if d is below a millisecond, above a year, or not in whole
// milliseconds.
//
// If Redis did not confirm the release, the lock ends after d or with its lease. The client does
// not retry in the background, unless an Unlock had failed before: then it goes on, and Redis keeps
// the lock for d. The program may call Unlock or UnlockAfter again. If that call succeeds, Redis
// keeps the lock for the longest of the requested times, also after Unlock. If Redis has kept the
// lock for that time, and it is over, the call succeeds too. If the lock ended earlier, the call
// returns lockerr.ErrLost. If an Unlock that had failed has freed the lock after all, the call
// returns lockerr.ErrNotHeld.
func (h *Hold) UnlockAfter(ctx context.Context, d time.Duration) error {
	if !h.isValid() {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "unlock after"}
	}
	defer runtime.KeepAlive(h)
	return h.unlocked(h.inner.UnlockAfter(ctx, d))
}
