package lock

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/lockerr"
)

// Do acquires a lock, runs fn under it, and releases it, also if fn panics or ends its goroutine.
// It is for the locks of this module; their Do methods document it for users.
func Do(ctx context.Context, acquire func(context.Context) (*Hold, error), fn func(context.Context) error) (err error) {
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Deferred, so that it also runs if fn panics.
		if unlockErr := h.unlockAfterDo(ctx); unlockErr != nil && !errors.Is(err, unlockErr) {
			err = joined.Errors(err, unlockErr)
		}
	}()
	return fn(keepAlive{h.inner.Derive(ctx), h})
}

// unlockAfterDo releases the hold of a Do. It reports a loss during the body, even if the body has
// succeeded. If the lock was already lost at the release, that is the same fact, and finish does
// not report it twice.
func (h *Hold) unlockAfterDo(ctx context.Context) error {
	lost := h.inner.LostErr()
	err := h.Unlock(ctx)
	if lost != nil && errors.Is(err, lockerr.ErrLost) {
		return lost
	}
	return err
}
