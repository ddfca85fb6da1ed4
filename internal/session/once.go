package session

import "context"

type onceKey struct{}

// Once returns a context for a call that is made with [Operation.Under]. The call ends when its first
// attempt has failed. An attempt without an answer goes on for as long as it may.
func Once(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	failed := func() { cancel(ownDeadline{why: "tried once"}) }
	return context.WithValue(ctx, onceKey{}, failed), func() { cancel(nil) }
}

// IsOnce reports whether ctx is from [Once]. The caller of Once goes on by itself if a call fails.
func IsOnce(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }

// Under returns the call as it must be made with ctx.
func (c Operation) Under(ctx context.Context) Operation {
	failed, ok := ctx.Value(onceKey{}).(func())
	if !ok {
		return c
	}
	c.RetryRefused = false
	tell := c.OnAttempt
	c.OnAttempt = func(err error) {
		if tell != nil {
			tell(err)
		}
		if err != nil {
			failed()
		}
	}
	return c
}
