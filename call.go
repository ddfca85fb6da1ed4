package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/lockerr"
)

// Call runs fn under a lock like [Mutex.Do], and returns what fn returns. The errors are those of
// Do. The value is that of fn, even if the error is of the lock. If fn did not run, the value is
// zero. ctx bounds the wait and fn, as in Do.
func Call[T any](ctx context.Context, l Locker, fn func(ctx context.Context) (T, error)) (value T, err error) {
	switch {
	case l == nil:
		return value, &lockerr.ConfigError{Setting: "lock", Value: l, Reason: "must not be nil"}
	case fn == nil:
		return value, &lockerr.ConfigError{Setting: "function", Value: "nil", Reason: "there is nothing to run"}
	}
	err = l.Do(ctx, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	return value, err
}
