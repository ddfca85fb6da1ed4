package lock

import (
	"context"
	"errors"
	"runtime"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// Do acquires a lock with the function acquire, runs fn under it, and releases it, also if fn
// panics or ends its goroutine. The locks of this module have their own Do and TryDo methods, whose
// docs say more. This function is for other ways to acquire a lock, such as Attach of a mutex.
//
// acquire must return a hold or an error. If it returns an error, Do returns that error and does
// not run fn. Otherwise Do returns the error of fn, joined with an error of the release, as Do of a
// mutex does. Do returns lockerr.ErrConfig if an argument is nil, or if acquire returns neither a
// hold nor an error.
func Do(ctx context.Context, acquire func(context.Context) (*Hold, error), fn func(context.Context) error) (err error) {
	switch {
	case ctx == nil:
		return &lockerr.ConfigError{Setting: "context", Value: nil, Reason: "must not be nil"}
	case acquire == nil:
		return &lockerr.ConfigError{Setting: "function that acquires", Value: "nil", Reason: "must not be nil"}
	case fn == nil:
		return &lockerr.ConfigError{Setting: "function", Value: "nil", Reason: "there is nothing to run"}
	}
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	if !h.isValid() {
		return &lockerr.ConfigError{Setting: "hold", Value: "nil", Reason: "the function that acquires must return a hold or an error"}
	}
	defer func() {
		// Deferred, so that it also runs if fn panics. If the lock was lost while fn ran, the
		// release returns that loss, which fn may have returned too. The error of another lock may
		// contain the loss, as the cause that ended its wait, without being a loss itself.
		lost := h.releaseAfterWork(ctx)
		isReported := errors.Is(err, lost) && errors.Is(err, lockerr.ErrLost)
		if lost != nil && !isReported {
			err = oneline.Errors(err, lost)
		}
	}()
	return fn(keepAlive{Context: h.inner.Derive(ctx), hold: h})
}

// releaseAfterWork is Unlock for Do. It returns nil if Redis did not confirm the release in time,
// because the work ran under the lock, or if the function ended the hold itself.
func (h *Hold) releaseAfterWork(ctx context.Context) error {
	defer runtime.KeepAlive(h)
	err := h.unlocked(h.inner.UnlockBriefly(ctx))
	for _, harmless := range []error{lockerr.ErrNotHeld, lockerr.ErrUnavailable, lockerr.ErrIndeterminate} {
		if errors.Is(err, harmless) {
			return nil
		}
	}
	return err
}
