package reentrant

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// request is the request of one Lock or TryLock.
type request struct {
	mutex.Request

	manager *manager
	queue   *localQueue
	first   backend // most requests start one hold, whose backend then needs no memory of its own
}

func newRequest(try bool) *request {
	return &request{Request: mutex.Request{Primitive: event.Mutex, Try: try}}
}

// CleanUp releases in the background what may have been, or may yet be, granted under an id, for a
// caller that has left.
func (r *request) CleanUp(id string, inFlight session.InFlight) {
	r.CleanUpID(id, inFlight, r.releaseID)
}

// retryRelease is CleanUp for an id that may have got the lock, for a lease, from a hold of this
// client. err says why nobody knows that.
func (r *request) retryRelease(err error, id string, lease time.Duration, inFlight session.InFlight) {
	r.RetryRelease(err, id, lease, inFlight, r.releaseID)
}

func (r *request) releaseID(ctx context.Context, id string) (lua.Status, error) {
	answer, err := r.Release(ctx, id, 0)
	return answer.Value.Status, err
}

// unlockLate unlocks in the background a hold that came when its caller had left.
func (r *request) unlockLate(h *acquisition.Hold) {
	r.NoteLateGrant(h.A.ID)
	r.Session().Background(func(ctx context.Context) { _ = h.Unlock(ctx) })
}

// unlockUntrusted unlocks a hold that took too long to get here, until ctx ends. The background
// then goes on. The error is that of the wait if ctx has ended, and otherwise ErrBeginAnew.
func (r *request) unlockUntrusted(ctx context.Context, h *acquisition.Hold) error {
	if ctx.Err() == nil {
		_ = h.Unlock(ctx)
	} else {
		r.Session().Background(func(ctx context.Context) { _ = h.Unlock(ctx) })
	}
	if err := ctx.Err(); err != nil {
		return r.waitErrorAfter(ctx, err, lua.AcquireReply{})
	}
	return mutex.ErrBeginAnew
}

// startHold makes a hold of a grant, and the acquisition that it begins. The lock came from Redis
// at fromRedis.
func (r *request) startHold(g acquisition.Grant, localLock bool, fromRedis mutex.Instant) *acquisition.Hold {
	k := &r.first
	if k.request != nil {
		k = new(backend)
	}
	k.request, k.fromRedis = r, fromRedis
	k.hasLocalLock.Store(localLock)
	return r.StartAcquisition(k, g)
}
