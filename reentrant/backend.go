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

// backend is the acquisition.MutexBackend of one grant of the mutex.
type backend struct {
	*request
	hasLocalLock atomic.Bool   // the acquisition has the local lock
	fromRedis    mutex.Instant // when the lock came from Redis, before the local handoffs
}

// Release hands the lock to the next waiter of this client. If there is none, or this client has
// had the lock for long enough, Release frees it.
func (b *backend) Release(ctx context.Context, a *acquisition.Acquisition) error {
	if b.hasLocalLock.Load() && !b.request.Session().IsClosing() && b.fromRedis.Age() < b.request.Settings.LocalHandoffTime {
		if w := b.queue.next(); w != nil {
			return b.handOff(ctx, a, w)
		}
	}
	return b.free(ctx, a)
}

// OnLost passes the local lock on: this client no longer has the lock, whatever its holder does.
func (b *backend) OnLost(*acquisition.Acquisition) {
	if b.hasLocalLock.Swap(false) {
		b.queue.passLocalLock()
	}
}

// OnEnded forgets the acquisition and passes the local lock on, unless the local lock went on with
// the lock.
func (b *backend) OnEnded(a *acquisition.Acquisition) {
	b.request.RemoveAcquisition(a)
	if b.hasLocalLock.Swap(false) {
		b.queue.passLocalLock()
	}
}

// handOff hands the lock to w, with one command. Whatever the result is, w gets at least the local
// lock, and asks by itself.
func (b *backend) handOff(ctx context.Context, from *acquisition.Acquisition, w *waiter) error {
	id, lease := w.request.NewAcquisitionID(), w.request.Settings.Lease
	returned := false
	defer func() {
		if !returned { // a hook has ended the goroutine, and the release is repeated
			b.requeue(w)
			b.retryRelease(b.undecided(), id, lease, session.InFlight{})
		}
	}()
	keys := b.request.Keys().Args
	answer, err := session.Do(ctx, b.request.Session(), b.request.NewOperation("unlock"),
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.TransferReply, error) {
			r, err := lua.Transfer(ctx, rdb, lua.TransferParams{
				LockKey: keys.Lock, FenceKey: keys.Fence,
				From: from.StoredID(), To: id,
				Lease: lease, VoidAfter: voidAfter, FenceRetention: b.request.Session().FenceLife(lease),
			})
			if lua.IsSplit(ctx, err) {
				return lua.TransferReply{}, nil
			}
			return r, err
		})
	returned = true
	if err == nil && answer.Value.Status == lua.Granted {
		b.hasLocalLock.Store(false) // it goes with the lock
		g := acquisition.Grant{ID: id, Fence: answer.Value.Fence, Sent: answer.Sent, InFlight: answer.InFlight}
		h := w.request.startHold(g, true, b.fromRedis)
		if !b.queue.deliver(w, h) {
			b.unlockLate(h)
		}
		runtime.Gosched() // the next holder goes on before the rest of this Unlock
		return nil
	}
	b.requeue(w)
	switch split := err == nil && answer.Value.Status == 0; {
	case split && !answer.InFlight.Any():
		return b.free(ctx, from) // no node has both keys; a release needs one
	case split:
		err = b.undecided()
	case err == nil && !answer.InFlight.Any():
		return acquisition.ErrGone
	case errors.Is(err, lockerr.ErrRefused) && !answer.InFlight.Any():
		return b.free(ctx, from) // the fence may be unusable, or a write denied; a release needs less
	}
	// Either may have it, or id may yet get it. Both are released, that of the caller by its
	// acquisition, and w asks again.
	b.retryRelease(err, id, lease, answer.InFlight)
	return err
}

// undecided is the error of a hand-over of which attempts are still in flight.
func (b *backend) undecided() error {
	return &lockerr.OpError{Kind: lockerr.ErrIndeterminate, Op: "unlock", Name: b.request.Name}
}

// requeue puts a waiter that has not given up back to the head of the queue, where it gets the
// turn.
func (b *backend) requeue(w *waiter) {
	b.queue.mu.Lock()
	defer b.queue.mu.Unlock()
	if !w.canceled {
		w.element = b.queue.contended().waiters.PushFront(w)
	}
}

// free releases the lock for all clients.
func (b *backend) free(ctx context.Context, a *acquisition.Acquisition) error {
	before := time.Now()
	answer, err := b.request.Release(ctx, a.StoredID(), 0)
	if err != nil {
		return err
	}
	if answer.Value.Receivers < 0 {
		b.request.Session().WarnPublishDenied(b.request.Keys().Channel)
	}
	if answer.Value.Status == lua.Gone && !answer.InFlight.Any() {
		return acquisition.ErrGone
	}
	b.manager.noteRelease(b.request.Name, b.request.Keys().Channel, answer.Value.Receivers, time.Since(before))
	return nil
}
