package session

import "context"

type singleAttemptKey struct{}

// SingleAttempt returns a context for a call that is made with [Operation.ForContext]. The call
// ends when its first attempt has failed. An attempt without an answer goes on for as long as it
// may.
func SingleAttempt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	failed := func() { cancel(ownDeadline{why: "tried once"}) }
	return context.WithValue(ctx, singleAttemptKey{}, failed), func() { cancel(nil) }
}

// IsSingleAttempt reports whether ctx is from [SingleAttempt]. Its caller goes on by itself if a
// call fails.
func IsSingleAttempt(ctx context.Context) bool { return ctx.Value(singleAttemptKey{}) != nil }

// ForContext returns the call as it must be made with ctx.
func (c Operation) ForContext(ctx context.Context) Operation {
	failed, ok := ctx.Value(singleAttemptKey{}).(func())
	if !ok {
		return c
	}
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
