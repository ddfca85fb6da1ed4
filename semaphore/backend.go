package semaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// backend is the acquisition.Backend of one permit.
type backend struct{ *request }

// Keep has Redis keep the units.
func (b *backend) Keep(ctx context.Context, a *acquisition.Acquisition, keep acquisition.Keep) (time.Time, session.InFlight, error) {
	call := session.Operation{
		Op: opRelease, Name: a.Name, Primitive: event.Semaphore, AttemptTimeout: b.settings.AttemptTimeout(), RetryRefused: true,
	}
	answer, err := session.Do(ctx, b.session, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.KeepReply, error) {
			return lua.KeepPermit(ctx, rdb, lua.KeepPermitParams{
				Keys: b.scriptKeys(), Acquisition: a.ID, Units: b.units,
				Kept: keep.ID, Number: keep.Number, For: keep.For, VoidAfter: voidAfter, Retention: b.session.FenceRetention,
			})
		})
	if err == nil && answer.Value.Status == lua.Gone {
		err = acquisition.ErrGone
	}
	return answer.First, answer.InFlight, err
}

// Release gives the units to the next waiters that fit, or frees them. The first answer says what
// became of the permit. If one command does not serve all waiters, or only frees the units because
// the slot migrates, the client does the rest in the background. So no error of a later command
// hides that answer.
func (b *backend) Release(ctx context.Context, a *acquisition.Acquisition) error {
	answer, err := b.releaseOrLeave(ctx, a.StoredID())
	if err != nil {
		return err
	}
	if answer.Value.More || answer.Value.IsSplit {
		b.cleanUpWith(session.InFlight{}, b.releaseAll(a.StoredID(), func(lua.Status) {}))
	}
	if answer.Value.Status == lua.Gone && !answer.InFlight.Any() {
		return acquisition.ErrGone
	}
	return nil
}

// OnLost has nothing to do: the queue of waiters is in Redis.
func (b *backend) OnLost(*acquisition.Acquisition) {}

// OnEnded forgets the permit.
func (b *backend) OnEnded(a *acquisition.Acquisition) {
	b.manager.removePermit(a)
}
