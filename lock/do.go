package lock

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// Do acquires a lock, runs fn under it, and releases it, also if fn panics or ends its goroutine.
// It is for the locks of this module; their Do and TryDo methods document it for users.
func Do(ctx context.Context, acquire func(context.Context) (*Hold, error), fn func(context.Context) error) (err error) {
	if fn == nil {
		return &lockerr.ConfigError{Setting: "function", Value: "nil", Reason: "there is nothing to run"}
	}
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Deferred, so that it also runs if fn panics. If the lock was lost while fn ran, Unlock
		// returns that loss, which fn may have returned too. fn may have ended the hold itself.
		unlockErr := h.Unlock(ctx)
		if unlockErr != nil && !errors.Is(err, unlockErr) && !errors.Is(unlockErr, lockerr.ErrNotHeld) {
			err = oneline.Errors(err, unlockErr)
		}
	}()
	return fn(keepAlive{h.inner.Derive(ctx), h})
}
