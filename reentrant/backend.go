package reentrant

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// backend is the acquisition.Backend of one grant of the mutex.
type backend struct {
	*request
	hasLocalLock atomic.Bool   // the acquisition has the local lock
	fromRedis    mutex.Instant // when the lock came from Redis, before the local handoffs
}

// Release hands the lock to the next waiter of this client. If there is none, or this client has had
// the lock for long enough, Release frees it.
func (k *backend) Release(ctx context.Context, a *acquisition.Acquisition) error {
	if k.hasLocalLock.Load() && !k.request.Session().IsClosing() && k.fromRedis.Age() < k.request.Settings.LocalHandoffTime {
		if w := k.queue.next(); w != nil {
			return k.handOff(ctx, a, w)
		}
	}
	return k.free(ctx, a)
}

// OnLost passes the local lock on: this client no longer has the lock, whatever its holder does.
func (k *backend) OnLost(*acquisition.Acquisition) {
	if k.hasLocalLock.Swap(false) {
		k.queue.passLocalLock()
	}
}

// OnEnded forgets the acquisition and passes the local lock on, unless the local lock went on with
// the lock. Copies of its acquire that are still in flight may yet be granted. OnEnded releases
// what they get.
func (k *backend) OnEnded(a *acquisition.Acquisition) {
	if a.InFlight.Any() {
		k.CleanUp(a.ID, a.InFlight)
	}
	k.request.State.RemoveHeld(a)
	if k.hasLocalLock.Swap(false) {
		k.queue.passLocalLock()
	}
	k.manager.releaseRef(k.queue)
	k.request.ReleaseState()
}

// handOff hands the lock to w, with one command. Whatever the result is, w gets at least the local
// lock, and asks by itself.
func (k *backend) handOff(ctx context.Context, from *acquisition.Acquisition, w *waiter) error {
	id := w.request.NewAcquisitionID()
	returned := false
	defer func() {
		if !returned { // a hook has ended the goroutine, and the release is repeated
			k.requeue(w)
			k.retryRelease(k.undecided(), id, session.InFlight{})
		}
	}()
	keys := k.request.Keys().Args
	answer, err := session.Do(ctx, k.request.Session(), k.request.NewOperation("unlock", false),
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.TransferReply, error) {
			r, err := lua.Transfer(ctx, rdb, lua.TransferParams{
				LockKey: keys.Lock, FenceKey: keys.Fence,
				From: from.StoredID(), To: id,
				Lease: w.request.Settings.Lease, VoidAfter: voidAfter, FenceRetention: k.request.Session().FenceLife(w.request.Settings.Lease),
			})
			switch {
			case lua.IsSplit(ctx, err):
				return lua.TransferReply{}, nil
			case err == nil:
				err = k.request.Session().CheckReply(k.request.Name, r.Status, r.Now)
			}
			return r, err
		})
	returned = true
	if err == nil && answer.Value.Status == lua.Granted {
		k.hasLocalLock.Store(false) // it goes with the lock
		h := w.request.startHold(id, answer.Value.Fence, answer.Sent, answer.InFlight, true, k.fromRedis)
		if !k.queue.deliver(w, handoff{hold: h}) {
			k.unlockLate(h)
		}
		runtime.Gosched() // the next holder goes on before the rest of this Unlock
		return nil
	}
	k.requeue(w)
	switch split := err == nil && answer.Value.Status == 0; {
	case split && !answer.InFlight.Any():
		return k.free(ctx, from) // no node has both keys; a release needs one
	case split:
		err = k.undecided()
	case err == nil && !answer.InFlight.Any():
		return acquisition.ErrGone
	case errors.Is(err, lockerr.ErrRefused) && !answer.InFlight.Any():
		return k.free(ctx, from) // the fence may be unusable, or a write denied; a release needs less
	}
	// Either may have it, or id may yet get it. Both are released, that of the caller by its acquisition,
	// and w asks again.
	k.retryRelease(err, id, answer.InFlight)
	return err
}

// undecided is the error of a hand-over of which attempts are still in flight.
func (k *backend) undecided() error {
	return &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "unlock", Name: k.request.Name}
}

// requeue puts a waiter that has not given up back to the head of the queue, where it gets the
// turn.
func (k *backend) requeue(w *waiter) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	if !w.canceled {
		w.element = k.queue.contended().waiters.PushFront(w)
	}
}

// free releases the lock for all clients.
func (k *backend) free(ctx context.Context, a *acquisition.Acquisition) error {
	before := time.Now()
	answer, err := k.request.Release(ctx, a.StoredID(), 0)
	if err != nil {
		return err
	}
	if answer.Value.Receivers < 0 {
		k.request.Session().WarnPublishDenied(k.request.Keys().Channel)
	}
	if answer.Value.Status == lua.Gone && !answer.InFlight.Any() {
		return acquisition.ErrGone
	}
	k.manager.noteRelease(k.request.Name, k.request.Keys().Channel, answer.Value.Receivers, time.Since(before))
	return nil
}
