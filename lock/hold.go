package lock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lockerr"
)

// Hold is one successful acquire of a lock. Every hold needs its own Unlock;
// after unlocking one of several holds of the same owner, in whichever order,
// the lock is still held. Methods may be called concurrently.
//
// A hold that becomes garbage without Unlock is reported as an error in the log
// and not renewed any more. Its context keeps it from being garbage. So do, until they
// end, contexts derived from it with a cancel function, and functions registered with
// context.AfterFunc: they wait for the end of the hold. Cancel or stop them.
//
// A nil *Hold, or one that no lock made, is not held. Unlock says so, so that it can be
// deferred; Trusted is false, Lost is closed, Context has ended, and the rest is zero.
type Hold struct {
	inner   *acquisition.Hold
	parent  context.Context // of Context; ended neither by deadline nor cancel
	cleanup runtime.Cleanup

	once sync.Once
	ctx  context.Context
}

// New makes the user's handle of a hold; for the locks of this module. Of nil it makes
// a hold that is not held.
func New(ctx context.Context, inner *acquisition.Hold) *Hold {
	if inner == nil {
		return new(Hold)
	}
	h := &Hold{inner: inner, parent: ctx}
	h.cleanup = runtime.AddCleanup(h, (*acquisition.Hold).Forget, inner)
	return h
}

// Name is the name of the lock.
func (h *Hold) Name() string { return h.grant().Name }

// Acquisition is the id under which Redis knows this grant: <client id>:<n>.
// Holds that re-entered share it.
func (h *Hold) Acquisition() string { return h.grant().ID }

// Fence is the number of this grant, larger than that of every earlier grant
// of the name; holds that re-entered share it. Send it along with writes to a
// resource that rejects smaller ones than it has seen.
func (h *Hold) Fence() int64 { return h.grant().Fence }

func (h *Hold) grant() *acquisition.Grant {
	if !h.isMade() {
		return &acquisition.Grant{}
	}
	return &h.inner.A.Grant
}

func (h *Hold) isMade() bool { return h != nil && h.inner != nil }

// notHeld is the context of a hold that no lock made.
var notHeld = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "hold"})
	return ctx
}()

// Lost is closed when the hold ended without Unlock: no later than trust in it
// ends, whether Redis answers or not. Closing the client closes it too.
// Nobody's work is stopped by it; see Context for that.
func (h *Hold) Lost() <-chan struct{} {
	if !h.isMade() {
		return notHeld.Done()
	}
	return h.inner.Lost()
}

// TrustedUntil is when trust in the lease ends unless it is renewed before,
// which the watchdog does. It is always earlier than the end of the lease in
// Redis: it is counted from before the last successful command was sent, and
// keeps a margin. It is zero once Unlock, or closing the client, has begun.
func (h *Hold) TrustedUntil() time.Time {
	if !h.isMade() {
		return time.Time{}
	}
	return h.inner.TrustedUntil()
}

// Trusted reports whether the hold can be relied on at this moment, by the
// monotonic clock and by the wall clock, which unlike the other goes on while a
// machine is suspended. It is false once Unlock, or closing the client, has
// begun, also while other holds of the owner remain. It asks nobody.
func (h *Hold) Trusted() bool { return h.isMade() && h.inner.Trusted() }

// Context returns a context for the work under the lock. It has the values of
// the context that the lock was acquired with, but not its deadline nor its
// cancel: those bound the wait. The lock, and the locks under whose contexts it was
// acquired, are re-entered with it. Goroutines that share it exclude each other from all
// other locks, and not from these. It ends when the hold does; context.Cause then is a
// *lockerr.LostError, lockerr.ErrClosed, or says that it was released.
func (h *Hold) Context() context.Context {
	if !h.isMade() {
		return notHeld
	}
	h.once.Do(func() {
		h.ctx = h.inner.Derive(context.WithoutCancel(h.parent))
	})
	return keepAlive{h.ctx, h}
}

// keepAlive is a context that refers to its hold, so that the hold is no
// garbage while work goes on with only the context in its hands. It wraps the
// context that the acquisition knows rather than lying inside it, because what
// the acquisition knows never is garbage.
type keepAlive struct {
	context.Context
	hold *Hold
}

// Unlock gives the hold back, and the lock with the last hold of its owner.
//
// It waits until Redis has answered, ctx ends, or trust in the lease does, whichever
// is first; what fails or is refused is tried again until then. One command has its
// time in any case, a few seconds at most; that is all the time there is when ctx is
// already over, which is no reason not to unlock.
//
// On success the hold is released and its context has ended. Errors:
//   - lockerr.ErrLost: the lock ended before, without our asking. Nothing was
//     changed in Redis. Unlocking again says the same.
//   - lockerr.ErrNotHeld: this hold was released before. Nothing was changed.
//   - lockerr.ErrClosed: the client was closed and has released it, or has tried to
//     (the error of Close says what it could not release). With
//     redis.ErrClosed beside it, the go-redis client was closed, and the lock is left
//     to its lease.
//   - lockerr.ErrIndeterminate, ErrUnavailable, ErrRefused: Redis did not say
//     that it is released. The release is tried on in the background, without
//     renewal unless another command of the lock is still under way, and Unlock
//     may be called again. It succeeds when the lock is released by then, or has
//     ended otherwise. Where other holds are left, this one is given back all
//     the same: only the number in Redis is late.
//
// Unlock costs one round trip. It stops the renewal first and waits for one
// that is under way, though not for one that hangs.
func (h *Hold) Unlock(ctx context.Context) error {
	if !h.isMade() {
		return &lockerr.OpError{Kind: lockerr.ErrNotHeld, Op: "unlock"}
	}
	defer runtime.KeepAlive(h)
	err := h.inner.Unlock(ctx)
	if err == nil || errors.Is(err, lockerr.ErrLost) {
		h.cleanup.Stop()
	}
	return err
}
