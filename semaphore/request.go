package semaphore

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/waitqueue"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

const (
	opAcquire = "acquire"
	opRelease = "release"
)

// request is the request of one Acquire or TryAcquire for units, and what it takes to ask Redis for
// them.
type request struct {
	*Semaphore

	session  *session.Session
	units    int
	owner    *owner.Owner // of the chain that asks, which goes on under the permit; may be nil
	callSite acquisition.CallSite
	isTry    bool      // it does not wait
	began    time.Time // zero if nobody observes it, or the observers know of its end
	wait     uint64    // its number, for observers

	ticket       int64 // 0 until it has one
	queueState   lua.QueueState
	lastFailure  error // why Redis could not be asked lately; nil when it could
	maybeApplied bool  // a request under an id that was given up may have taken effect
	timeout      session.AdaptiveTimeout
}

func (s *Semaphore) scriptKeys() lua.SemaphoreKeys {
	return lua.SemaphoreKeys(s.keys.Args)
}

func (w *request) waiter(id string) lua.Waiter {
	return lua.Waiter{Acquisition: id, Units: w.units, Heartbeat: w.settings.Heartbeat, Lease: w.settings.Lease, Description: w.session.Description}
}

func (w *request) heartbeat(id string) lua.PermitHeartbeat {
	return lua.PermitHeartbeat{Keys: w.scriptKeys(), Waiter: w.waiter(id), Limit: w.limit}
}

// waitOperation returns how to send a command of the wait. The pause is short enough for the waiter
// to show within a heartbeat that it is alive, after the server stood still.
func (w *request) waitOperation() session.Operation {
	return session.Operation{
		Op: opAcquire, Name: w.keys.Name, Primitive: event.Semaphore, AttemptTimeout: w.settings.AttemptTimeout(), StopOnClose: true,
		MaxBackoff: w.settings.Heartbeat / 3, Observer: w, MaybeApplied: w.maybeApplied,
		Adaptive: &w.timeout,
	}
}

// SetLastFailure implements session.AttemptObserver.
func (w *request) SetLastFailure(err error) { w.lastFailure = err }

// Spec implements waitqueue.Request.
func (w *request) Spec(id string) waitqueue.Spec[lua.PermitHeartbeat] {
	return waitqueue.Spec[lua.PermitHeartbeat]{Key: w.keys.Name, Heartbeat: w.settings.Heartbeat, Lease: w.settings.Lease, HeartbeatArgs: w.heartbeat(id)}
}

// Join asks Redis for units or a place in the queue, under an id. A refusal that no waiting would
// cure is an error.
func (w *request) Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	ticket, call := w.ticket, w.waitOperation()
	call.Window = w.settings.QueueWindow()
	if try {
		call.Window = w.settings.Window()
	}
	answer, err := session.Do(ctx, w.session, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.JoinReply, error) {
			r, err := lua.AcquirePermits(ctx, rdb, lua.AcquirePermitsParams{
				Keys: w.scriptKeys(), Waiter: w.waiter(id), Ticket: ticket, Try: try,
				VoidAfter: voidAfter, Limit: w.limit, Retention: w.session.FenceRetention, ClientChannels: key.ClientPrefix,
			})
			if err == nil {
				err = w.session.CheckReply(w.keys.Name, r.Status, r.Now)
			}
			return r, err
		})
	w.maybeApplied = w.maybeApplied || errors.Is(err, session.ErrWindowExpired)
	switch r := answer.Value; {
	case err != nil, r.Status == lua.Granted:
	case r.Status == lua.LimitDiffers:
		err = &lockerr.LimitError{Name: w.keys.Name, Requested: w.limit, Limit: r.QueueState.Limit, Declared: r.QueueState.Declared}
	case r.Status == lua.OverLimit:
		err = &lockerr.LimitError{Name: w.keys.Name, Requested: w.limit, Limit: r.QueueState.Limit, Units: w.units}
	default:
		w.ticket, w.queueState = r.Ticket, r.QueueState
	}
	return answer, err
}

// Claim sends a heartbeat for one waiter, until it is answered. The heartbeat takes over what the
// waiter was granted. A grant ends soon unless an attempt takes it over, so a lost attempt must
// leave time for another. Each attempt counts trust for itself, from the instant before it was
// sent.
func (w *request) Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error) {
	call := w.waitOperation()
	call.Share = w.settings.QueueWindow()
	return session.Do(ctx, w.session, call,
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.HeartbeatReply, error) {
			replies, err := w.manager.heartbeats(ctx, rdb, []lua.PermitHeartbeat{w.heartbeat(id)}, true)
			if err != nil {
				return lua.HeartbeatReply{}, err
			}
			return replies[0], nil
		})
}

// releaseOrLeave gives up what an id has: units, which go to the next waiters, or the place in the
// queue. It sends the command again even if Redis refuses it, because a permission may come back
// before the lease ends. One call is one command. If there is more to hand on, CleanUp does the
// rest.
func (w *request) releaseOrLeave(ctx context.Context, id string) (session.Answer[lua.ReleasePermitsReply], error) {
	call := session.Operation{Op: opRelease, Name: w.keys.Name, Primitive: event.Semaphore, AttemptTimeout: w.settings.AttemptTimeout(), RetryRefused: true, NeverVoid: true}
	return session.Do(ctx, w.session, call.ForContext(ctx),
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleasePermitsReply, error) {
			return lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{
				Keys: w.scriptKeys(), Waiter: w.waiter(id), Retention: w.session.FenceRetention, ClientChannels: key.ClientPrefix,
			})
		})
}

// CleanUp releases in the background what may have been, or may yet be, granted or queued under an
// id, and hands on what is free. A permit stands for a lease. A place stands for a heartbeat after
// its last heartbeat, and may be granted at the end of that time.
func (w *request) CleanUp(id string, inFlight session.InFlight) {
	w.cleanUp(inFlight, w.releaseAll(id, func(status lua.Status) {
		if status == lua.Freed {
			e := w.Event(event.LateGrant)
			e.ID = id
			w.session.Observe(context.Background(), e)
		}
	}))
}

func (w *request) cleanUp(inFlight session.InFlight, release func(ctx context.Context) error) {
	w.session.CleanUp(inFlight, w.settings.Heartbeat+w.settings.Lease, release)
}

// errSplit says that a release has freed the units, and has to be repeated for the rest.
var errSplit = errors.New("redlatch: the slot of the semaphore migrates")

// releaseAll returns a function that gives up what an id has, and hands on all that is free. It calls
// note with each answer.
func (w *request) releaseAll(id string, note func(lua.Status)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, w.session.AttemptTime(w.keys.Name, w.settings.AttemptTimeout()))
		defer cancel()
		for {
			answer, err := w.releaseOrLeave(ctx, id)
			note(answer.Value.Status)
			switch {
			case err == nil && answer.Value.IsSplit:
				return errSplit
			case err != nil || !answer.Value.More:
				return err
			}
		}
	}
}

// startHold makes a hold of a grant, and the acquisition that it begins.
func (w *request) startHold(g waitqueue.Grant) *acquisition.Hold {
	w.manager.addPermit(g.ID, heldPermit{units: w.units})
	h := acquisition.Start(w.session, &backend{w}, acquisition.Grant{
		Name: w.keys.Name, Primitive: event.Semaphore, Units: int32(w.units),
		ID: g.ID, Sent: g.Sent, InFlight: g.InFlight, Owner: w.owner, Settings: w.settings,
	}, session.Permits, &w.callSite)
	w.manager.addPermit(g.ID, heldPermit{h.A, w.units})
	return h
}

// newHandle makes the user's handle, after replicas have acknowledged the grant if they must. ctx is that of
// the caller, and bounded ends with the wait. If the client
// closes, newHandle releases the permit instead, because closing may have looked for held permits before
// this one was there.
func (w *request) newHandle(ctx, bounded context.Context, h *acquisition.Hold, err error) (*Permit, error) {
	if err == nil && !h.A.IsAcknowledged() {
		err = h.Acknowledge(bounded)
	}
	if err == nil && w.session.IsClosing() {
		w.session.Background(func(ctx context.Context) { _ = h.A.Close(ctx) })
		err = &lockerr.OpError{Kind: lockerr.ErrClosed, Op: opAcquire, Name: w.keys.Name}
	}
	w.observeEnd(ctx, h, err)
	if err != nil {
		return nil, err
	}
	return &Permit{hold: acquisition.NewHandle(ctx, h).(*lock.Hold), units: w.units}, nil
}

// TrustExpired reports whether trust in a grant of a whole lease was over when the grant arrived.
// The waiter then asks for it again, which extends it.
func (w *request) TrustExpired(sent time.Time) bool {
	return time.Since(sent) >= w.settings.Lease-w.settings.Margin()
}

// try asks Redis once.
func (w *request) try(ctx context.Context) (*acquisition.Hold, error) {
	g, granted, err := w.manager.waiters.TryJoin(ctx, w)
	switch {
	case granted:
		return w.startHold(g), nil
	case err == nil:
		err = w.notAcquired(session.LateRefusal(ctx))
	}
	return nil, err
}

// contend joins the queue, and waits in it until the units come or ctx ends.
func (w *request) contend(ctx context.Context) (*acquisition.Hold, error) {
	g, err := w.manager.waiters.JoinAndWait(ctx, w, waitqueue.WaitOptions{OnChange: w.notify})
	if err != nil {
		return nil, w.waitError(ctx, err)
	}
	return w.startHold(g), nil
}

// notify notes the place of the waiter, and notifies the user.
func (w *request) notify(id string, p lua.QueueState, again bool) {
	w.queueState = p
	if notice := w.settings.Notice; notice != nil {
		notice(settings.Waiting{Name: w.keys.Name, ID: id, Position: p.Position, Length: p.Length, Requeued: again})
	}
}

// notAcquired says what is in use, and which place the waiter has.
func (w *request) notAcquired(cause error) error {
	return &lockerr.NotAcquiredError{
		Name: w.keys.Name, InUse: w.queueState.Limit - w.queueState.Free, Limit: w.queueState.Limit,
		Position: w.queueState.Position, Length: w.queueState.Length, Err: cause,
	}
}

// waitError returns the error, for users, of a wait that ended.
func (w *request) waitError(ctx context.Context, err error) error {
	var limits *lockerr.LimitError
	var lowered *waitqueue.LimitError
	switch {
	case errors.As(err, &lowered):
		return &lockerr.LimitError{Name: w.keys.Name, Requested: w.limit, Limit: lowered.Limit, Units: w.units}
	case errors.As(err, &limits):
		return err
	case errors.Is(err, waitqueue.ErrRemoved):
		return w.notAcquired(lockerr.ErrRemoved)
	}
	return w.session.WaitError(ctx, session.WaitEnd{
		Operation: w.waitOperation(), Err: err, LastFailure: w.lastFailure, Blocked: w.queueState.Limit != 0, NotAcquired: w.notAcquired(session.Cause(ctx)),
	})
}
