package lock

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/lockerr"
)

// Do acquires a lock, runs fn under it, and releases it, also when fn panics or
// ends its goroutine; for the locks of this module, whose Do methods say what
// users need to know.
func Do(ctx context.Context, acquire func(context.Context) (*Hold, error), fn func(context.Context) error) (err error) {
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Here and not behind fn, so that it also runs when fn panics.
		if unlockErr := h.finish(ctx); unlockErr != nil && !errors.Is(err, unlockErr) {
			err = joined.Errors(err, unlockErr)
		}
	}()
	return fn(keepAlive{h.inner.Derive(ctx), h})
}

// finish releases the hold of a Do. A loss during the body is reported though
// the body may have succeeded; that it was lost already when it was to be
// released is the same fact and not reported twice.
func (h *Hold) finish(ctx context.Context) error {
	lost := h.inner.LostErr()
	err := h.Unlock(ctx)
	if lost != nil && errors.Is(err, lockerr.ErrLost) {
		return lost
	}
	return err
}
