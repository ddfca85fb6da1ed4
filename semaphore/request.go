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

func (r *request) waiter(id string) lua.Waiter {
	return lua.Waiter{Acquisition: id, Units: r.units, Heartbeat: r.settings.Heartbeat, Lease: r.settings.Lease, Description: r.session.Description}
}

func (r *request) heartbeat(id string) lua.PermitHeartbeat {
	return lua.PermitHeartbeat{Keys: r.scriptKeys(), Waiter: r.waiter(id), Limit: r.limit}
}

// waitOperation returns how to send a command of the wait. The pause is short enough for the waiter
// to show within a heartbeat that it is alive, after the server stood still.
func (r *request) waitOperation() session.Operation {
	return session.Operation{
		Op: opAcquire, Name: r.keys.Name, Primitive: event.Semaphore, AttemptTimeout: r.settings.AttemptTimeout(), StopOnClose: true,
		MaxBackoff: r.settings.Heartbeat / 3, Observer: r, MaybeApplied: r.maybeApplied,
		Adaptive: &r.timeout,
	}
}

// SetLastFailure implements session.AttemptObserver.
func (r *request) SetLastFailure(err error) { r.lastFailure = err }

// Spec implements waitqueue.Request.
func (r *request) Spec(id string) waitqueue.Spec[lua.PermitHeartbeat] {
	return waitqueue.Spec[lua.PermitHeartbeat]{Key: r.keys.Name, Heartbeat: r.settings.Heartbeat, Lease: r.settings.Lease, HeartbeatArgs: r.heartbeat(id)}
}

// Join asks Redis for units or a place in the queue, under an id. A refusal that no waiting would
// cure is an error.
func (r *request) Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error) {
	ticket, call := r.ticket, r.waitOperation()
	call.Window = r.settings.QueueWindow()
	if try {
		call.Window = r.settings.Window()
	}
	answer, err := session.Do(ctx, r.session, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.JoinReply, error) {
			return lua.AcquirePermits(ctx, rdb, lua.AcquirePermitsParams{
				Keys: r.scriptKeys(), Waiter: r.waiter(id), Ticket: ticket, Try: try,
				VoidAfter: voidAfter, Limit: r.limit, Retention: r.session.FenceRetention, ClientChannels: key.ClientPrefix,
			})
		})
	r.maybeApplied = r.maybeApplied || errors.Is(err, session.ErrWindowExpired)
	switch reply := answer.Value; {
	case err != nil, reply.Status == lua.Granted:
	case reply.Status == lua.LimitDiffers:
		err = &lockerr.LimitError{Name: r.keys.Name, Requested: r.limit, Limit: reply.QueueState.Limit, Declared: reply.QueueState.Declared}
	case reply.Status == lua.OverLimit:
		err = &lockerr.LimitError{Name: r.keys.Name, Requested: r.limit, Limit: reply.QueueState.Limit, Units: r.units}
	default:
		r.ticket, r.queueState = reply.Ticket, reply.QueueState
	}
	return answer, err
}

// Claim asks Redis about one waiter, and takes over what it was granted; see
// [waitqueue.WaiterSet.Claim].
func (r *request) Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error) {
	call := r.waitOperation()
	call.Share = r.settings.QueueWindow()
	return r.manager.waiters.Claim(ctx, call, r.heartbeat(id))
}

// releaseOrLeave gives up what an id has: units, which go to the next waiters, or the place in the
// queue. It sends the command again even if Redis refuses it, because a permission may come back
// before the lease ends. One call is one command. If there is more to hand on, CleanUp does the
// rest.
func (r *request) releaseOrLeave(ctx context.Context, id string) (session.Answer[lua.ReleasePermitsReply], error) {
	call := session.Operation{Op: opRelease, Name: r.keys.Name, Primitive: event.Semaphore, AttemptTimeout: r.settings.AttemptTimeout(), RetryRefused: true, NeverVoid: true}
	return session.Do(ctx, r.session, call.ForContext(ctx),
		func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.ReleasePermitsReply, error) {
			return lua.ReleasePermits(ctx, rdb, lua.ReleasePermitsParams{
				Keys: r.scriptKeys(), Waiter: r.waiter(id), Retention: r.session.FenceRetention, ClientChannels: key.ClientPrefix,
			})
		})
}

// CleanUp releases in the background what may have been, or may yet be, granted or queued under an
// id, and hands on what is free. A permit stands for a lease. A place stands for a heartbeat after
// its last heartbeat, and may be granted at the end of that time.
func (r *request) CleanUp(id string, inFlight session.InFlight) {
	r.cleanUpWith(inFlight, r.releaseAll(id, func(status lua.Status) {
		if status == lua.Freed {
			e := r.Event(event.LateGrant)
			e.ID = id
			r.session.Observe(context.Background(), e)
		}
	}))
}

func (r *request) cleanUpWith(inFlight session.InFlight, release func(ctx context.Context) error) {
	r.session.CleanUp(inFlight, r.settings.Heartbeat+r.settings.Lease, release)
}

// errSplit says that a release has freed the units, and has to be repeated for the rest.
var errSplit = errors.New("redlatch: the slot of the semaphore migrates")

// releaseAll returns a function that gives up what an id has, and hands on all that is free. It
// calls note with each answer.
func (r *request) releaseAll(id string, note func(lua.Status)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, r.session.AttemptTime(r.keys.Name, r.settings.AttemptTimeout()))
		defer cancel()
		for {
			answer, err := r.releaseOrLeave(ctx, id)
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
func (r *request) startHold(g acquisition.Grant) *acquisition.Hold {
	g.Name, g.Owner, g.Settings, g.Primitive, g.Units = r.keys.Name, r.owner, r.settings, event.Semaphore, int32(r.units)
	r.manager.addPermit(g.ID, heldPermit{units: r.units})
	h := acquisition.Start(r.session, &backend{r}, g, &r.callSite)
	r.manager.addPermit(g.ID, heldPermit{h.A, r.units})
	return h
}

// newHandle makes the user's handle, after replicas have acknowledged the grant if they must. ctx
// is that of the caller, and bounded ends with the wait. If the client closes, newHandle releases
// the permit instead, because closing may have looked for held permits before this one was there.
func (r *request) newHandle(ctx, bounded context.Context, h *acquisition.Hold, err error) (*Permit, error) {
	if err == nil && !h.A.IsAcknowledged() {
		err = h.Acknowledge(bounded)
	}
	if err == nil && r.session.IsClosing() {
		r.session.Background(func(ctx context.Context) { _ = h.A.Close(ctx) })
		err = &lockerr.OpError{Kind: lockerr.ErrClosed, Op: opAcquire, Name: r.keys.Name}
	}
	r.observeEnd(ctx, h, err)
	if err != nil {
		return nil, err
	}
	return &Permit{hold: acquisition.NewHandle(ctx, h).(*lock.Hold), units: r.units}, nil
}

// TrustExpired reports whether trust in a grant of a whole lease was over when the grant arrived.
// The waiter then asks for it again, which extends it.
func (r *request) TrustExpired(sent time.Time) bool {
	return time.Since(sent) >= r.settings.Lease-r.settings.Margin()
}

// try asks Redis once.
func (r *request) try(ctx context.Context) (*acquisition.Hold, error) {
	g, granted, err := r.manager.waiters.TryJoin(ctx, r)
	switch {
	case granted:
		return r.startHold(g), nil
	case err == nil:
		err = r.notAcquired(session.LateRefusal(ctx))
	}
	return nil, err
}

// contend joins the queue, and waits in it until the units come or ctx ends.
func (r *request) contend(ctx context.Context) (*acquisition.Hold, error) {
	g, err := r.manager.waiters.JoinAndWait(ctx, r, waitqueue.WaitOptions{OnChange: r.notify})
	if err != nil {
		return nil, r.waitError(ctx, err)
	}
	return r.startHold(g), nil
}

// notify notes the place of the waiter, and notifies the user.
func (r *request) notify(id string, p lua.QueueState, again bool) {
	r.queueState = p
	if notice := r.settings.Notice; notice != nil {
		notice(id, lockerr.NotAcquiredError{Name: r.keys.Name, Position: p.Position, Length: p.Length}, again)
	}
}

// notAcquired says what is in use, and which place the waiter has.
func (r *request) notAcquired(cause error) error {
	return &lockerr.NotAcquiredError{
		Name: r.keys.Name, InUse: r.queueState.Limit - r.queueState.Free, Limit: r.queueState.Limit,
		Position: r.queueState.Position, Length: r.queueState.Length, Err: cause,
	}
}

// waitError returns the error, for users, of a wait that ended.
func (r *request) waitError(ctx context.Context, err error) error {
	var limits *lockerr.LimitError
	var lowered *waitqueue.LimitError
	switch {
	case errors.As(err, &lowered):
		return &lockerr.LimitError{Name: r.keys.Name, Requested: r.limit, Limit: lowered.Limit, Units: r.units}
	case errors.As(err, &limits):
		return err
	case errors.Is(err, waitqueue.ErrRemoved):
		return r.notAcquired(lockerr.ErrRemoved)
	}
	return r.session.WaitError(ctx, session.WaitEnd{
		Operation: r.waitOperation(), Err: err, LastFailure: r.lastFailure, Blocked: r.queueState.Limit != 0, NotAcquired: r.notAcquired(session.Cause(ctx)),
	})
}
