package lock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/session"
)

// WithWaitDeadline returns a context with which no call waits for a lock after t: one limit for all
// locks of a request. It applies to all calls of Lock, Acquire, Do and redlatch.Call with this
// context, or with one derived from it, also inside of the function of Do and with the context of a
// hold.
//
// At t, such a call returns the error that it returns after redlatch.WithWaitTimeout: a
// *lockerr.NotAcquiredError if somebody else has the lock, and lockerr.ErrUnavailable or
// ErrIndeterminate if Redis did not answer. The earliest of these ends the wait: t, the wait
// timeout of the lock, an earlier wait deadline of ctx, and the end of ctx.
//
// If t is over when the call begins, or less than a millisecond away, the call asks Redis once, as
// TryLock does. It acquires a free lock, and returns a *lockerr.NotAcquiredError immediately if the
// lock is held. It waits for Redis for one second at most, or for a shorter wait timeout.
//
// A re-entry is no wait, so it succeeds after t too. It waits for Redis until t, but for at least
// one second, or for a shorter wait timeout.
//
// The context itself does not end at t, and neither does the context of a hold: the function of Do
// goes on working. After the function, Do and TryDo wait for the confirmation of their release,
// normally for two seconds at most. A wait deadline shortens this time, to 100 ms at least. The
// client then goes on with the release in the background, as it does without a wait deadline. So
// with Redis away, n nested calls whose functions have ended by t return by t plus n times 100 ms.
// Unlock, UnlockAfter, Export and Release do not look at t. TryLock and TryAcquire do not wait for
// the lock, and t does not change how long they wait for Redis. Attach does not look at t either.
//
// If t is the zero time, the result has no wait deadline. Use that for work that outlives its
// request, together with context.WithoutCancel. Otherwise the lock calls of that work no longer
// wait after t.
func WithWaitDeadline(ctx context.Context, t time.Time) context.Context {
	return session.WithWaitDeadline(ctx, t)
}
