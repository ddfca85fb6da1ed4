package session

import "context"

type singleAttemptKey struct{}

// SingleAttempt returns a context for an operation that is changed with [Operation.ForContext]. The
// operation ends when its first attempt has failed. It still waits for the answer to an attempt for
// as long as it may.
func SingleAttempt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	failed := func() { cancel(ownDeadline{why: "tried once"}) }
	return context.WithValue(ctx, singleAttemptKey{}, failed), func() { cancel(nil) }
}

// ForContext returns the operation as it must be done with ctx.
func (o Operation) ForContext(ctx context.Context) Operation {
	failed, ok := ctx.Value(singleAttemptKey{}).(func())
	if !ok {
		return o
	}
	observer := o.Observer
	o.Observer = AttemptFunc(func(err error) {
		if observer != nil {
			observer.SetLastFailure(err)
		}
		if err != nil {
			failed()
		}
	})
	return o
}
