package fair

import (
	"context"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lua"
)

// backend is the acquisition.MutexBackend of one grant of the mutex.
type backend struct {
	*request
}

// Release gives the lock to the next waiter in the queue, or frees it.
func (b *backend) Release(ctx context.Context, a *acquisition.Acquisition) error {
	answer, err := b.releaseOrLeave(ctx, a.StoredID())
	if err != nil {
		return err
	}
	if answer.Value.Receivers < 0 {
		b.request.Session().WarnPublishDenied(b.request.Keys().Channel)
	}
	if answer.Value.Status == lua.Gone && !answer.InFlight.Any() {
		return acquisition.ErrGone
	}
	return nil
}

// OnLost has nothing to do: the queue of waiters is in Redis.
func (b *backend) OnLost(*acquisition.Acquisition) {}

// OnEnded forgets the acquisition.
func (b *backend) OnEnded(a *acquisition.Acquisition) {
	b.request.RemoveAcquisition(a)
}
