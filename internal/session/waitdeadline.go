package session

import (
	"context"
	"time"
)

// waitDeadlineKey is the key under which a context has its wait deadline.
type waitDeadlineKey struct{}

// WithWaitDeadline returns a context with a wait deadline. An earlier one of ctx counts. The zero
// time removes it.
func WithWaitDeadline(ctx context.Context, t time.Time) context.Context {
	child := context.WithValue(ctx, waitDeadlineKey{}, t)
	if before, ok := waitDeadline(ctx); ok && !t.IsZero() && before.Before(t) {
		return ctx
	}
	return child
}

// waitDeadline returns the wait deadline of ctx. ok is false if it has none.
func waitDeadline(ctx context.Context) (t time.Time, ok bool) {
	t, _ = ctx.Value(waitDeadlineKey{}).(time.Time)
	return t, !t.IsZero()
}

const (
	// lateTimeout is how long a call waits for Redis if the wait deadline was over when it began.
	lateTimeout = time.Second
	// shortestWait is the shortest time that a call waits. With less time, a call only tries.
	shortestWait = time.Millisecond
	// shortestRelease is how long Do waits for its release if the wait deadline is over.
	shortestRelease = 100 * time.Millisecond
)

// lateRefusal is the cause of a refusal for a call that did not wait, because its wait deadline was
// over.
var lateRefusal = ownDeadline{why: "the wait deadline was over (WithWaitDeadline)"}

// waitLimit is what a wait deadline changes for a call, besides the end of its context.
type waitLimit struct {
	late     bool          // the deadline was over when the call began
	least    time.Duration // so long may a re-entry wait for Redis, if the wait ends before
	leastWhy string        // why it ends then
}

// untilWaitDeadline is WaitContext for a wait with a wait deadline. A call for which the deadline
// is over gets time to ask Redis once.
func untilWaitDeadline(ctx context.Context, deadline time.Time, timeout time.Duration) (context.Context, context.CancelFunc) {
	now := time.Now()
	least, leastWhy := lateTimeout, "gave up after "+lateTimeout.String()+", with the wait deadline over (WithWaitDeadline)"
	if timeout > 0 && timeout < least {
		least, leastWhy = timeout, timeoutReason(timeout)
	}
	limit := &waitLimit{late: deadline.Sub(now) < shortestWait, least: least, leastWhy: leastWhy}
	end, why := deadline, "gave up at the wait deadline (WithWaitDeadline)"
	switch {
	case limit.late:
		end, why = now.Add(least), leastWhy
	case timeout > 0 && now.Add(timeout).Before(deadline):
		end, why = now.Add(timeout), timeoutReason(timeout)
	}
	b := &Bounded{Context: withoutEndlessDeadline(ctx), end: end, why: why, limit: limit}
	return b, b.Release
}

// ReentryContext returns the context for a re-entry. ctx is that of the wait. A re-entry is no
// wait, so it gets time to ask Redis also shortly before the wait deadline.
func ReentryContext(ctx context.Context) (context.Context, context.CancelFunc) {
	b, ok := ctx.(*Bounded)
	if !ok || b.limit == nil {
		return ctx, func() {}
	}
	end := time.Now().Add(b.limit.least)
	if !b.end.Before(end) {
		return ctx, func() {}
	}
	return WithDeadlineReason(b.Context, end, b.limit.leastWhy)
}

// LateRefusal returns why a call must not wait, or nil if it may. ctx is that of the wait.
func LateRefusal(ctx context.Context) error {
	if b, ok := ctx.(*Bounded); ok && b.limit != nil && b.limit.late {
		return lateRefusal
	}
	return nil
}

// ReleaseTime returns how long Do waits for the release of its lock: the usual time, but no longer
// than until the wait deadline of ctx.
func ReleaseTime(ctx context.Context, usual time.Duration) time.Duration {
	deadline, ok := waitDeadline(ctx)
	if !ok {
		return usual
	}
	return min(usual, max(shortestRelease, time.Until(deadline).Truncate(time.Millisecond)))
}
