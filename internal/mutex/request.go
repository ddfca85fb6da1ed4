package mutex

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// ErrOwnerHolds ends the wait of a Lock whose own chain has got the lock by another call meanwhile.
// The Lock must re-enter, because it would otherwise wait for itself.
var ErrOwnerHolds = errors.New("the chain has the lock")

// errOtherUnanswered says why a Lock gave up that never asked Redis, because another call of its client asks for
// the lock.
var errOtherUnanswered = errors.New("redis has not answered another call of this client for the lock")

// Request is one request, of a Lock or TryLock, with everything that it takes to ask Redis for the
// lock.
type Request struct {
	Registry *Registry
	State    *LockState
	Name     string // of the lock
	Settings *settings.Lock
	Owner    *owner.Owner
	CallSite acquisition.CallSite

	began        Instant         // 0 when the observers know of the end
	wait         uint64          // its number, for observers
	Primitive    event.Primitive // set before Begin
	Try          bool            // it does not wait; set before Begin
	Source       event.Source    // of the hold that it gets
	maybeApplied bool            // a request under an id that was given up may have taken effect; only the goroutine that waits uses it
	maybeFreed   atomic.Bool     // a release may have freed the lock, and the queue may not have been served
}

// Session is that of the client.
func (w *Request) Session() *session.Session { return w.Registry.Session }

// Begin begins the request w. It checks everything that can be checked before Redis is asked. It counts
// the request as a user of the lock state until Close. It must be called by the method that the user
// calls, because it records the caller of that method.
func (n *Core) Begin(ctx context.Context, w *Request) error {
	if err := n.Check(ctx); err != nil {
		return err
	}
	s := n.Registry.Session
	by, ended := owner.ForAcquire(ctx), ctx.Err() != nil // before anything is counted: they may panic
	switch {
	case !s.BeginRequest():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: n.Keys.Lock}
	case ended: // even if the lock is free: the caller has gone
		s.EndRequest()
		return &lockerr.OpError{Op: "lock", Name: n.Keys.Lock, Err: session.CauseFor(ctx, n.Keys.Lock)}
	}
	w.Registry, w.State = n.Registry, n.Registry.AcquireRef(n.Keys.Lock)
	w.Name, w.Settings = n.Keys.Lock, n.Settings
	w.Owner, w.CallSite, w.began = by, acquisition.CallerSite(), Now()
	w.observeBegin(ctx)
	return nil
}

// WaitContext is [session.WaitContext] for the request.
func (w *Request) WaitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return session.WaitContext(ctx, w.Try, w.Settings.WaitTimeout)
}

// Close ends what Begin began. If the call leaves work, the background must have got it
// before, so that closing waits for one of the two.
func (w *Request) Close() {
	w.observeEnd(context.Background(), nil, acquisition.ErrAborted)
	w.Registry.ReleaseRef(w.Name, w.State)
	w.Session().EndRequest()
}

// NewHandle makes the user's handle of a hold, after replicas have acknowledged its grant if they must. ctx
// is that of the caller, which the context of the hold descends from. bounded ends with the wait.
// If the client closes, NewHandle releases the hold instead, because closing may have listed the held
// locks before this hold was there.
func (w *Request) NewHandle(ctx, bounded context.Context, h *acquisition.Hold, err error) (*lock.Hold, error) {
	if err == nil && !h.A.IsAcknowledged() {
		if err = h.Acknowledge(bounded); err == nil {
			w.State.AddHeld(h.A)
		}
	}
	if err == nil && w.Session().IsClosing() {
		w.Session().Background(func(ctx context.Context) { _ = h.A.Close(ctx) })
		err = &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: w.Name}
	}
	w.noteRefusal(bounded, err)
	w.observeEnd(ctx, h, err)
	if err != nil {
		return nil, err
	}
	return acquisition.NewHandle(ctx, h).(*lock.Hold), nil
}

// noteRefusal says in the error of a request where this client acquired the lock, if this client has it.
// The program may wait for itself. It also says why the request did not wait, if it should have.
func (w *Request) noteRefusal(bounded context.Context, err error) {
	refused, ok := err.(*lockerr.NotAcquiredError) //nolint:errorlint // one inside of another error is of another call
	if !ok {
		return
	}
	if refused.Err == nil {
		refused.Err = session.LateRefusal(bounded)
	}
	a := w.State.Holder()
	if a == nil || a.ID != refused.Holder {
		return
	}
	if site := a.OldestCallSite(); site.IsKnown() {
		refused.AcquiredAt = site.Short()
	}
}

// ReenterHeld adds a hold if the chain has the lock, and reports whether the chain has it. If the
// acquisition was released meanwhile, it reports false, and the request needs a fresh grant. But if
// the client closes, the error is ErrClosed, because closing releases locks without their chains.
func (w *Request) ReenterHeld(ctx context.Context) (h *acquisition.Hold, has bool, err error) {
	a := w.State.HeldBy(w.Owner)
	w.Source = event.Redis
	if a == nil {
		return nil, false, nil
	}
	w.Source = event.Reentry
	ctx, cancel := session.ReentryContext(ctx)
	defer cancel()
	h, err = a.Reenter(ctx, w.CallSite)
	if op, is := errors.AsType[*lockerr.OpError](err); is {
		op.Reentry = true
	}
	switch {
	case !errors.Is(err, acquisition.ErrAlreadyReleased):
		return h, true, err
	case w.Session().IsClosing():
		return nil, true, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: w.Name}
	}
	w.Source = event.Redis
	return nil, false, nil
}

// Keys returns the keys of the lock. A request does not keep them, because a held lock keeps its request,
// and the keys of a name take more memory than all else that the name needs.
func (w *Request) Keys() *key.Mutex { return w.Registry.Keys(w.Name) }

// NewAcquisitionID returns an id for a fresh grant.
func (w *Request) NewAcquisitionID() string { return w.Session().NewAcquisitionID() }

// NewOperation returns how to send a command; see session.Operation. Other goroutines call it too,
// beside the Lock that waits: those that release in the background, and one that hands the lock on.
func (w *Request) NewOperation(op string, insist bool) session.Operation {
	return session.Operation{
		Op: op, Name: w.Name, Primitive: w.Primitive, AttemptTimeout: w.Settings.AttemptTimeout(),
		StopOnClose: op == "lock", RetryRefused: insist, Observer: w.State,
	}
}

// NewWaitOperation returns how to send a request for a fresh grant. Only the goroutine that waits
// may call it.
func (w *Request) NewWaitOperation() session.Operation {
	call := w.NewOperation("lock", false)
	call.MaybeApplied = w.maybeApplied
	return call
}

// NoteExpired reports whether a request ended because its id must be given up. If so, it sets
// maybeApplied: the request may have taken effect.
func (w *Request) NoteExpired(err error) bool {
	expired := errors.Is(err, session.ErrWindowExpired)
	w.maybeApplied = w.maybeApplied || expired
	return expired
}

// Acquire asks Redis for the lock under an id, or for another hold of it. It calls lease before each
// attempt. If lease is nil, it is that of the settings.
func (w *Request) Acquire(ctx context.Context, id string, holds int, lease func() time.Duration) (session.Answer[lua.AcquireReply], error) {
	s := w.Session()
	if lease == nil {
		lease = func() time.Duration { return w.Settings.Lease }
	}
	call := w.NewOperation("lock", false)
	if holds == 1 { // only the first hold is a fresh grant
		call = w.NewWaitOperation()
		w.State.NoteAsk()
		call.Window = w.Settings.Window()
	}
	keys := w.Keys().Args
	answer, err := session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.AcquireReply, error) {
			r, err := lua.Acquire(ctx, rdb, lua.AcquireParams{
				LockKey: keys.Lock, FenceKey: keys.Fence, QueueKey: keys.Queue,
				Acquisition: id, Lease: lease(), Holds: holds,
				VoidAfter: voidAfter, FenceRetention: s.FenceLife(w.Settings.Lease), Description: s.Description,
			})
			if err == nil {
				err = s.CheckReply(w.Name, r.Status, r.Now)
			}
			return r, err
		})
	if err == nil && holds == 1 && !strings.HasPrefix(answer.Value.Holder, s.ID) {
		w.maybeApplied = false // no acquisition of this client has what an earlier request may have got
	}
	return answer, err
}

// Release sends Redis the number of holds that are left. With none left, it frees the lock. If
// somebody is in the queue of the fair mutex, the first waiter then gets the lock. The command is
// retried even if Redis refuses it, because a permission may come back before the lease ends.
//
// The answer that there are waiters may get lost with the reply to the command that freed the lock.
// Release, or a later Release of this request, then learns only that the lock is gone. It serves
// the queue in this case too.
func (w *Request) Release(ctx context.Context, id string, left int) (session.Answer[lua.ReleaseReply], error) {
	s := w.Session()
	keys := w.Keys().Args
	call := w.NewOperation("unlock", true).ForContext(ctx)
	call.NeverVoid = left == 0
	answer, err := session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.ReleaseReply, error) {
			p := lua.ReleaseParams{
				LockKey: keys.Lock, QueueKey: keys.Queue, Channel: keys.Channel,
				Acquisition: id, HoldsLeft: left, Cluster: s.Cluster(),
			}
			if left > 0 {
				p.VoidAfter = voidAfter
			}
			r, err := lua.Release(ctx, rdb, p)
			if err == nil && (r.Status == lua.StillHeld || r.Status == lua.Void) {
				err = s.CheckReply(w.Name, r.Status, r.Now)
			}
			return r, err
		})
	if left > 0 {
		return answer, err
	}
	if answer.InFlight.Any() || answer.Value.HasWaiters { // a hook may end the goroutine before the queue is served
		w.maybeFreed.Store(true)
	}
	if answer.Value.HasWaiters || err == nil && answer.Value.Status == lua.Gone && w.maybeFreed.Load() {
		w.GrantQueued(ctx, "unlock")
	}
	return answer, err
}

// CleanUpGrant releases, in the background, what Redis has granted or may still grant under an id.
// release makes one attempt at it.
func (w *Request) CleanUpGrant(inFlight session.InFlight, release func(ctx context.Context) error) {
	w.cleanUpFor(inFlight, w.Settings.Lease, release)
}

// CleanUpPlace is CleanUpGrant for an id that may also have a place in a queue. A place lasts a
// heartbeat without a lease, and may be granted at the end of it.
func (w *Request) CleanUpPlace(inFlight session.InFlight, release func(ctx context.Context) error) {
	w.cleanUpFor(inFlight, w.Settings.Heartbeat+w.Settings.Lease, release)
}

func (w *Request) cleanUpFor(inFlight session.InFlight, stands time.Duration, release func(ctx context.Context) error) {
	w.Session().CleanUp(inFlight, stands, w.attempt(release))
}

// RetryRelease goes on in the background with a release that failed with err. release makes one attempt at it.
func (w *Request) RetryRelease(err error, inFlight session.InFlight, release func(ctx context.Context) error) {
	w.Session().RetryRelease(err, inFlight, w.Settings.Lease, w.attempt(release))
}

// attempt bounds a command by the time of one attempt.
func (w *Request) attempt(send func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, w.Session().AttemptTime(w.Name, w.Settings.AttemptTimeout()))
		defer cancel()
		return send(ctx)
	}
}

// StartAcquisition makes the acquisition of a grant, and returns its first hold. After a local
// handoff, another goroutine than that of the waiter calls it.
func (w *Request) StartAcquisition(k acquisition.Backend, id string, fence int64, sent time.Time, inFlight session.InFlight) *acquisition.Hold {
	w.Registry.AcquireRef(w.Name) // for the acquisition, until ReleaseState
	return acquisition.Start(w.Session(), k, acquisition.Grant{
		Name: w.Name,
		ID:   id, Fence: fence, Sent: sent, InFlight: inFlight,
		Owner: w.Owner, Settings: w.Settings, Primitive: w.Primitive, Units: 1,
	}, session.Holds, &w.CallSite)
}

// AddHeld makes a fresh grant known to the other calls of the client, which may re-enter it. If replicas
// must acknowledge the grant, NewHandle does so after that.
func (w *Request) AddHeld(h *acquisition.Hold) {
	if h.A.IsAcknowledged() {
		w.State.AddHeld(h.A)
	}
}

// RemoveAcquisition ends what StartAcquisition began.
func (w *Request) RemoveAcquisition(a *acquisition.Acquisition) {
	w.State.RemoveHeld(a)
	w.ReleaseState()
}

// ReleaseState ends the use of the lock state that StartAcquisition began.
func (w *Request) ReleaseState() { w.Registry.ReleaseRef(w.Name, w.State) }

// TrustExpired reports whether trust in a grant was over when the grant arrived. The answer took
// that long, or the process was stopped. The caller then asks again, which extends the grant.
func (w *Request) TrustExpired(sent time.Time) bool {
	return time.Since(sent) >= w.Settings.Lease-w.Settings.Margin()
}

// WaitError returns the error of a wait that ended with err; see [session.WaitEnd]. last says what
// is known of the holder. If last names none, WaitError takes what Redis last answered to another waiter of
// this client. If there is no such answer, it names an acquisition of this client that has the lock.
func (w *Request) WaitError(ctx context.Context, err error, last lockerr.NotAcquiredError) error {
	if refusal := w.State.RefusalSince(w.began); refusal != nil && last.Holder == "" {
		last = *refusal
	}
	blocked, failure := last.Holder != "", w.State.LastFailure()
	a := w.State.Holder()
	if a == nil && !blocked && failure == nil && w.State.IsUnanswered(w.began) {
		failure = errOtherUnanswered // nobody knows whether anybody has the lock
	}
	if a != nil && !blocked {
		last.Holder, last.Description = a.ID, w.Session().Description
		last.Remaining = time.Until(a.TrustedUntil().Add(a.Settings.Margin()))
	}
	last.Name, last.Err = w.Name, session.Cause(ctx)
	return w.Session().WaitError(ctx, session.WaitEnd{
		Operation: w.NewOperation("lock", false), Err: err, LastFailure: failure, Blocked: blocked, NotAcquired: &last,
	})
}

// Reenter asks Redis for another hold. With SetHolds, it is the part of a Backend that is the same for all
// kinds of mutex, because these guard the same key.
func (w *Request) Reenter(ctx context.Context, a *acquisition.Acquisition, holds int, lease func() time.Duration) (acquisition.HoldsUpdate, error) {
	answer, err := w.Acquire(ctx, a.ID, holds, lease)
	return acquisition.HoldsUpdate{Sent: answer.Sent, InFlight: answer.InFlight}, asErrGone(answer.Value.Status, err)
}

// SetHolds sends Redis the number of holds.
func (w *Request) SetHolds(ctx context.Context, a *acquisition.Acquisition, holds int) (acquisition.HoldsUpdate, error) {
	answer, err := w.Release(ctx, a.ID, holds)
	return acquisition.HoldsUpdate{Sent: answer.Sent, InFlight: answer.InFlight}, asErrGone(answer.Value.Status, err)
}

// Keep has Redis keep the lock.
func (w *Request) Keep(ctx context.Context, a *acquisition.Acquisition, k acquisition.Keep) error {
	answer, err := session.Do(ctx, w.Session(), w.NewOperation("unlock", true),
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.KeepReply, error) {
			r, err := lua.Keep(ctx, rdb, lua.KeepParams{
				LockKey: w.Keys().Args.Lock, Acquisition: a.ID,
				Kept: k.ID, Number: k.Number, For: k.For, VoidAfter: voidAfter,
			})
			if err == nil {
				err = w.Session().CheckReply(w.Name, r.Status, r.Now)
			}
			return r, err
		})
	if err == nil && answer.Value.Status == lua.Kept {
		w.Session().KeepFenceFor(w.Name, k.For, w.Keys().Args.Fence)
	}
	return asErrGone(answer.Value.Status, err)
}

func asErrGone(status lua.Status, err error) error {
	if err == nil && status == lua.Gone {
		return acquisition.ErrGone
	}
	return err
}
