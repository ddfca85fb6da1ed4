package fair

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// request is the request of one Lock or TryLock.
type request struct {
	mutex.Request

	manager      *manager
	ticket       int64 // 0 until it has one
	queueState   lua.QueueState
	queueStateAt lua.Time // when the client last learned of the place
	timeout      session.AdaptiveTimeout
}

func newRequest(try bool) *request {
	return &request{Request: mutex.Request{Primitive: event.FairMutex, Try: try}}
}

func (r *request) waiter(id string) lua.Waiter {
	return lua.Waiter{Acquisition: id, Units: 1, Heartbeat: r.Settings.Heartbeat, Lease: r.Settings.Lease, Description: r.Session().Description}
}

// Spec implements waitqueue.Request.
func (r *request) Spec(id string) waitqueue.Spec[lua.Heartbeat] {
	return waitqueue.Spec[lua.Heartbeat]{
		Key: r.Name, Heartbeat: r.Settings.Heartbeat, Lease: r.Settings.Lease, HeartbeatArgs: r.heartbeat(id), Channel: r.Keys().Channel,
	}
}

// waitOperation returns how to send a command of the wait. The pause is short enough for the waiter
// to show within a heartbeat that it is alive, after the server stood still.
func (r *request) waitOperation() session.Operation {
	call := r.NewWaitOperation()
	call.MaxBackoff = r.Settings.Heartbeat / 3
	call.Adaptive = &r.timeout
	return call
}

// Join asks Redis for the lock or a place in the queue, under an id.
func (r *request) Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	s, ticket := r.Session(), r.ticket
	call := r.waitOperation()
	call.Window = r.Settings.QueueWindow()
	if try {
		call.Window = r.Settings.Window()
	}
	answer, err := session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.JoinReply, error) {
			return lua.Join(ctx, rdb, lua.JoinParams{
				Keys: mutex.FairKeys(r.Keys()), Waiter: r.waiter(id), Ticket: ticket, Try: try,
				VoidAfter: voidAfter, FenceRetention: s.FenceLife(r.Settings.Lease), ClientChannels: key.ClientPrefix,
			})
		})
	if reply := answer.Value; err == nil && reply.Status != lua.Granted {
		r.ticket = reply.Ticket
		r.setQueueState(reply.QueueState, reply.Now)
	}
	r.NoteExpired(err)
	return answer, err
}

func (r *request) heartbeat(id string) lua.Heartbeat {
	return lua.Heartbeat{Keys: mutex.FairKeys(r.Keys()), Waiter: r.waiter(id)}
}

// Claim asks Redis about one waiter, and takes over what it was granted; see
// [waitqueue.WaiterSet.Claim].
func (r *request) Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error) {
	call := r.waitOperation()
	call.Share = r.Settings.QueueWindow()
	return r.manager.waiters.Claim(ctx, call, r.heartbeat(id))
}

// releaseOrLeave gives up what an id has: the lock, which goes to the next waiter, or the place in
// the queue. It sends the command again while expired waiters are being dropped. The answer is that
// of the first command, which gave up all that the id had. If a later command fails, the client
// retries it in the background.
func (r *request) releaseOrLeave(ctx context.Context, id string) (session.Answer[lua.ReleaseFairReply], error) {
	answer, err := r.releaseOrLeaveOnce(ctx, id)
	for more := err == nil && answer.Value.More; more; {
		next, err := r.releaseOrLeaveOnce(ctx, id)
		if err != nil {
			r.CleanUp(id, session.InFlight{})
			break
		}
		answer.Value.Receivers, more = next.Value.Receivers, next.Value.More
	}
	return answer, err
}

// releaseOrLeaveOnce sends one command of releaseOrLeave.
func (r *request) releaseOrLeaveOnce(ctx context.Context, id string) (session.Answer[lua.ReleaseFairReply], error) {
	s := r.Session()
	call := r.NewReleaseOperation().ForContext(ctx)
	call.NeverVoid = true
	return session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleaseFairReply, error) {
			return lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{
				Keys: mutex.FairKeys(r.Keys()), Waiter: r.waiter(id), Channel: r.Keys().Channel,
				FenceRetention: s.FenceLife(r.Settings.Lease), ClientChannels: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
}

// CleanUp leaves in the background what may have been, or may yet be, granted or queued under an
// id.
func (r *request) CleanUp(id string, inFlight session.InFlight) {
	r.CleanUpID(id, inFlight, func(ctx context.Context, id string) (lua.Status, error) {
		answer, err := r.releaseOrLeave(ctx, id)
		return answer.Value.Status, err
	})
}

// startHold makes a hold of a grant, and the acquisition that it begins.
func (r *request) startHold(g acquisition.Grant) *acquisition.Hold {
	return r.StartAcquisition(&backend{request: r}, g)
}

// try asks Redis for the lock, and does not queue.
func (r *request) try(ctx context.Context) (*acquisition.Hold, error) {
	switch g, granted, err := r.manager.waiters.TryJoin(ctx, r); {
	case granted:
		return r.startHold(g), nil
	case err != nil:
		return nil, err
	case r.State.HeldBy(r.Owner) != nil: // by another call of the chain
		return nil, mutex.ErrBeginAnew
	}
	return nil, r.notAcquired(nil)
}

// contend joins the queue, and waits in it until the lock comes or ctx ends. The lock may also come
// by another call of the chain. Its errors are for users, except ErrBeginAnew: the chain has the
// lock, or had it a moment ago.
func (r *request) contend(ctx context.Context) (*acquisition.Hold, error) {
	warning := r.NewSelfDeadlockWarning()
	defer warning.Stop()
	own, stop := r.State.NotifyOnGrant(r.Owner)
	defer stop()
	if r.State.HeldBy(r.Owner) != nil {
		return nil, mutex.ErrBeginAnew
	}
	warning.Start()
	var entered *acquisition.Hold
	var failed error
	enter := func() (has bool) {
		entered, has, failed = r.ReenterHeld(ctx)
		return has
	}
	g, err := r.manager.waiters.JoinAndWait(ctx, r, waitqueue.WaitOptions{
		OnChange: r.notify, Interrupt: own, EndsWait: enter, WarnTimer: warning.C, Warn: warning.Check,
	})
	switch {
	case err == nil:
		return r.startHold(g), nil
	case errors.Is(err, waitqueue.ErrInterrupted):
		return entered, failed
	case errors.Is(err, waitqueue.ErrRemoved):
		return nil, r.notAcquired(lockerr.ErrRemoved)
	}
	return nil, r.WaitError(ctx, err, *r.notAcquired(nil))
}

// setQueueState notes the place of the waiter.
func (r *request) setQueueState(p lua.QueueState, now lua.Time) {
	r.queueState, r.queueStateAt = p, now
}

// notify notifies the user of the place of the waiter.
func (r *request) notify(id string, p lua.QueueState, again bool) {
	r.setQueueState(p, r.Session().Now(r.Name))
	if notice := r.Settings.Notice; notice != nil {
		notice(id, *r.notAcquired(nil), again)
	}
}

// notAcquired says who holds the lock, and which place the waiter has.
func (r *request) notAcquired(cause error) *lockerr.NotAcquiredError {
	return &lockerr.NotAcquiredError{
		Name: r.Name, Holder: r.queueState.Holder, Description: r.queueState.Description, Remaining: r.queueState.Remaining,
		Since: mutex.GrantTime(r.queueState.Fence, r.queueStateAt.Add(time.Second)), Position: r.queueState.Position, Length: r.queueState.Length, Err: cause,
	}
}
