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
	"github.com/redlatch/redlatch/internal/settings"
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

func (w *request) waiter(id string) lua.Waiter {
	return lua.Waiter{Acquisition: id, Units: 1, Heartbeat: w.Settings.Heartbeat, Lease: w.Settings.Lease, Description: w.Session().Description}
}

// Spec implements waitqueue.Request.
func (w *request) Spec(id string) waitqueue.Spec[lua.Heartbeat] {
	return waitqueue.Spec[lua.Heartbeat]{
		Key: w.Name, Heartbeat: w.Settings.Heartbeat, Lease: w.Settings.Lease, HeartbeatArgs: w.heartbeat(id), Channel: w.Keys().Channel,
	}
}

// waitOperation returns how to send a command of the wait. The pause is short enough for the waiter
// to show within a heartbeat that it is alive, after the server stood still.
func (w *request) waitOperation() session.Operation {
	call := w.NewWaitOperation()
	call.MaxBackoff = w.Settings.Heartbeat / 3
	call.Adaptive = &w.timeout
	return call
}

// Join asks Redis for the lock or a place in the queue, under an id.
func (w *request) Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	s, ticket := w.Session(), w.ticket
	call := w.waitOperation()
	call.Window = w.Settings.QueueWindow()
	if try {
		call.Window = w.Settings.Window()
	}
	answer, err := session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.JoinReply, error) {
			r, err := lua.Join(ctx, rdb, lua.JoinParams{
				Keys: mutex.FairKeys(w.Keys()), Waiter: w.waiter(id), Ticket: ticket, Try: try,
				VoidAfter: voidAfter, FenceRetention: s.FenceLife(w.Settings.Lease), ClientChannels: key.ClientPrefix,
			})
			if err == nil {
				err = s.CheckReply(w.Name, r.Status, r.Now)
			}
			return r, err
		})
	if r := answer.Value; err == nil && r.Status != lua.Granted {
		w.ticket = r.Ticket
		w.setQueueState(r.QueueState, r.Now)
	}
	w.NoteExpired(err)
	return answer, err
}

func (w *request) heartbeat(id string) lua.Heartbeat {
	return lua.Heartbeat{Keys: mutex.FairKeys(w.Keys()), Waiter: w.waiter(id)}
}

// Claim sends a heartbeat for one waiter, until it is answered. The heartbeat takes over what the
// waiter was granted. A grant ends soon unless an attempt takes it over, so a lost attempt must
// leave time for another. Each attempt counts trust for itself, from the instant before it was
// sent.
func (w *request) Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error) {
	call := w.waitOperation()
	call.Share = w.Settings.QueueWindow()
	return session.Do(ctx, w.Session(), call,
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.HeartbeatReply, error) {
			replies, err := w.manager.heartbeats(ctx, rdb, []lua.Heartbeat{w.heartbeat(id)}, true)
			if err != nil {
				return lua.HeartbeatReply{}, err
			}
			return replies[0], nil
		})
}

// releaseOrLeave gives up what an id has: the lock, which goes to the next waiter, or the place in
// the queue. It sends the command again while expired waiters are being dropped. It also sends it
// again after a refusal, because a permission may come back before the lease ends. The answer is
// that of the first command, which gave up all that the id had. If a later command fails, the
// client retries it in the background.
func (w *request) releaseOrLeave(ctx context.Context, id string) (session.Answer[lua.ReleaseFairReply], error) {
	answer, err := w.releaseOrLeaveOnce(ctx, id)
	for more := err == nil && answer.Value.More; more; {
		next, err := w.releaseOrLeaveOnce(ctx, id)
		if err != nil {
			w.CleanUp(id, session.InFlight{})
			break
		}
		answer.Value.Receivers, more = next.Value.Receivers, next.Value.More
	}
	return answer, err
}

// releaseOrLeaveOnce sends one command of releaseOrLeave.
func (w *request) releaseOrLeaveOnce(ctx context.Context, id string) (session.Answer[lua.ReleaseFairReply], error) {
	s := w.Session()
	call := w.NewOperation("unlock", true).ForContext(ctx)
	call.NeverVoid = true
	return session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleaseFairReply, error) {
			return lua.ReleaseFair(ctx, rdb, lua.ReleaseFairParams{
				Keys: mutex.FairKeys(w.Keys()), Waiter: w.waiter(id), Channel: w.Keys().Channel,
				FenceRetention: s.FenceLife(w.Settings.Lease), ClientChannels: key.ClientPrefix, Cluster: s.Cluster(),
			})
		})
}

// CleanUp leaves in the background what may have been, or may yet be, granted or queued under an
// id.
func (w *request) CleanUp(id string, inFlight session.InFlight) {
	w.CleanUpPlace(inFlight, func(ctx context.Context) error {
		answer, err := w.releaseOrLeave(ctx, id)
		w.NoteCleanUp(id, answer.Value.Status)
		return err
	})
}

// startHold makes a hold of a grant, and the acquisition that it begins.
func (w *request) startHold(g waitqueue.Grant) *acquisition.Hold {
	k := &backend{request: w}
	h := w.StartAcquisition(k, g.ID, g.Fence, g.Sent, g.InFlight)
	w.AddHeld(h)
	return h
}

// try asks Redis for the lock, and does not queue.
func (w *request) try(ctx context.Context) (*acquisition.Hold, error) {
	switch g, granted, err := w.manager.waiters.TryJoin(ctx, w); {
	case granted:
		return w.startHold(g), nil
	case err != nil:
		return nil, err
	case w.State.HeldBy(w.Owner) != nil: // by another call of the chain
		return nil, mutex.ErrOwnerHolds
	}
	refused := w.notAcquired()
	return nil, &refused
}

// contend joins the queue, and waits in it until the lock comes or ctx ends. The lock may also come
// by another call of the chain. Its errors are for users, except ErrOwnerHolds: the chain has the
// lock, or had it a moment ago.
func (w *request) contend(ctx context.Context) (*acquisition.Hold, error) {
	warning := w.NewSelfDeadlockWarning()
	defer warning.Stop()
	own, stop := w.State.NotifyOnGrant(w.Owner)
	defer stop()
	if w.State.HeldBy(w.Owner) != nil {
		return nil, mutex.ErrOwnerHolds
	}
	warning.Start()
	var entered *acquisition.Hold
	var failed error
	enter := func() (has bool) {
		entered, has, failed = w.ReenterHeld(ctx)
		return has
	}
	g, err := w.manager.waiters.JoinAndWait(ctx, w, waitqueue.WaitOptions{
		OnChange: w.notify, Interrupt: own, EndsWait: enter, WarnTimer: warning.C, Warn: warning.Check,
	})
	switch {
	case err == nil:
		return w.startHold(g), nil
	case errors.Is(err, waitqueue.ErrInterrupted):
		return entered, failed
	case errors.Is(err, waitqueue.ErrRemoved):
		return nil, w.removedError()
	}
	return nil, w.WaitError(ctx, err, w.notAcquired())
}

// setQueueState notes the place of the waiter.
func (w *request) setQueueState(p lua.QueueState, now lua.Time) {
	w.queueState, w.queueStateAt = p, now
}

// notify notifies the user of the place of the waiter.
func (w *request) notify(id string, p lua.QueueState, again bool) {
	w.setQueueState(p, w.Session().Now(w.Name))
	if notice := w.Settings.Notice; notice != nil {
		r := w.notAcquired()
		notice(settings.Waiting{
			Name: r.Name, ID: id, Position: r.Position, Length: r.Length, Holder: r.Holder, Description: r.Description,
			Since: r.Since, Remaining: r.Remaining, Requeued: again,
		})
	}
}

// notAcquired says who holds the lock, and which place the waiter has.
func (w *request) notAcquired() lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{
		Name: w.Name, Holder: w.queueState.Holder, Description: w.queueState.Description, Remaining: w.queueState.Remaining,
		Since: mutex.GrantTime(w.queueState.Fence, w.queueStateAt.Add(time.Second)), Position: w.queueState.Position, Length: w.queueState.Length,
	}
}

// removedError returns the error of a waiter that an operator removed from the queue.
func (w *request) removedError() error {
	r := w.notAcquired()
	r.Err = lockerr.ErrRemoved
	return &r
}
