package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// backend is the acquisition.Backend of one permit. A permit has one hold, because no owner could
// re-enter it.
type backend struct{ *request }

// Reenter is never called.
func (k *backend) Reenter(context.Context, *acquisition.Acquisition, int, func() time.Duration) (acquisition.HoldsUpdate, error) {
	panic("semaphore: a permit has no re-entry")
}

// SetHolds is never called.
func (k *backend) SetHolds(context.Context, *acquisition.Acquisition, int) (acquisition.HoldsUpdate, error) {
	panic("semaphore: a permit has one hold")
}

// Keep has Redis keep the units.
func (k *backend) Keep(ctx context.Context, a *acquisition.Acquisition, keep acquisition.Keep) error {
	call := session.Operation{
		Op: opRelease, Name: a.Name, Primitive: event.Semaphore, AttemptTimeout: k.settings.AttemptTimeout(), RetryRefused: true,
	}
	answer, err := session.Do(ctx, k.session, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.KeepReply, error) {
			r, err := lua.KeepPermit(ctx, rdb, lua.KeepPermitParams{
				Keys: k.scriptKeys(), Acquisition: a.ID, Units: k.units,
				Kept: keep.ID, Number: keep.Number, For: keep.For, VoidAfter: voidAfter, Retention: k.session.FenceRetention,
			})
			if err == nil {
				err = k.session.CheckReply(a.Name, r.Status, r.Now)
			}
			return r, err
		})
	if err == nil && answer.Value.Status == lua.Gone {
		err = acquisition.ErrGone
	}
	return err
}

// Release gives the units to the next waiters that fit, or frees them. The first answer says what
// became of the permit. If one command does not serve all waiters, or only frees the units because the slot
// migrates, the client does the rest in the background. So no error of a later command hides that answer.
func (k *backend) Release(ctx context.Context, a *acquisition.Acquisition) error {
	answer, err := k.releaseOrLeave(ctx, a.StoredID())
	if err != nil {
		return err
	}
	if answer.Value.More || answer.Value.IsSplit {
		k.cleanUp(session.InFlight{}, k.releaseAll(a.StoredID(), func(lua.Status) {}))
	}
	if answer.Value.Status == lua.Gone && !answer.InFlight.Any() {
		return acquisition.ErrGone
	}
	return nil
}

// OnLost has nothing to do: the queue of waiters is in Redis.
func (k *backend) OnLost(*acquisition.Acquisition) {}

// OnEnded forgets the permit. Copies of its command that are still in flight may yet be granted or
// queued. OnEnded releases what they get.
func (k *backend) OnEnded(a *acquisition.Acquisition) {
	if a.InFlight.Any() {
		k.CleanUp(a.ID, a.InFlight)
	}
	k.manager.removePermit(a)
}
