package reentrant

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lua"
)

// want is one wish for a lock, of a Lock or TryLock, and what it takes to ask
// Redis for it.
type want struct {
	family   *Family
	l        *local
	keys     key.Mutex
	settings *settings.Lock
	owner    *owner.Owner
	site     acquisition.Site
}

func (w *want) newID() string { return w.family.session.NewAcquisition() }

func (w *want) call(op string, insist bool) session.Call {
	return session.Call{
		Op: op, Name: w.keys.Lock, Limit: w.settings.CallLimit(),
		Waits: op == "lock", Insist: insist, Fault: w.l.setFault,
	}
}

// ask asks Redis for the lock under an id, or for one hold more of it.
func (w *want) ask(ctx context.Context, id string, holds int, lease time.Duration) (session.Answer[lua.AcquireReply], error) {
	s := w.family.session
	return session.Do(ctx, s, w.call("lock", false),
		func(ctx context.Context, voidAfter lua.Time) (lua.AcquireReply, error) {
			r, err := lua.Acquire(ctx, s.Redis, lua.AcquireParams{
				LockKey: w.keys.Lock, FenceKey: w.keys.Fence,
				Acquisition: id, Lease: lease, Holds: holds,
				VoidAfter: voidAfter, KeepFence: s.KeepFence, About: s.About,
			})
			if err == nil {
				err = s.Heard(r.Status, r.Now)
			}
			return r, err
		})
}

// release tells Redis how many holds are left; none frees the lock. It is sent
// again also when Redis refuses it, for a permission may come back before the
// lease ends.
func (w *want) release(ctx context.Context, id string, left int) (session.Answer[lua.ReleaseReply], error) {
	s := w.family.session
	return session.Do(ctx, s, w.call("unlock", true),
		func(ctx context.Context, _ lua.Time) (lua.ReleaseReply, error) {
			return lua.Release(ctx, s.Redis, lua.ReleaseParams{
				LockKey: w.keys.Lock, Channel: w.keys.Channel, Acquisition: id, HoldsLeft: left,
			})
		})
}

// giveBack releases in the background what may have been, or may yet be,
// granted under an id.
func (w *want) giveBack(id string, strays lua.Time) {
	w.family.session.GiveBack(strays, func(ctx context.Context) { w.releaseQuietly(ctx, id) })
}

// releaseQuietly releases what an id may have. After a lease there is nothing
// left to release.
func (w *want) releaseQuietly(ctx context.Context, id string) lua.Status {
	ctx, cancel := context.WithTimeout(ctx, w.settings.Lease)
	defer cancel()
	answer, _ := w.release(ctx, id, 0)
	return answer.Value.Status
}

// begin makes a hold of a grant, and the acquisition it begins.
func (w *want) begin(id string, fence int64, sent time.Time, strays lua.Time, turn bool) *acquisition.Hold {
	w.family.enter(w.keys.Lock) // for the acquisition; until Ended
	k := &keeper{want: w}
	k.turn.Store(turn)
	h := acquisition.Begin(w.family.session, k, acquisition.Grant{
		Name: w.keys.Lock, Key: w.keys.Lock, Slot: w.slot(),
		ID: id, Fence: fence, Sent: sent, Strays: strays,
		Owner: w.owner, Settings: w.settings,
	}, w.site)
	w.l.granted(h.A)
	return h
}

// slot groups renewals: by hash slot in a cluster, all together elsewhere.
func (w *want) slot() int {
	if w.family.session.Cluster {
		return w.keys.Slot
	}
	return 0
}
