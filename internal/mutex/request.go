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

// ErrBeginAnew says that a request must look again whether its chain has the lock. Most often
// another call of the chain has got it meanwhile, and the request would otherwise wait for itself.
var ErrBeginAnew = errors.New("the request begins anew")

// errOtherUnanswered says why a Lock gave up that never asked Redis, because another call of its
// client asks for the lock.
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
func (r *Request) Session() *session.Session { return r.Registry.Session }

// Begin begins the request w. It checks everything that can be checked before Redis is asked. It
// counts the request as a user of the lock state until Close. It must be called by the method that
// the user calls, because it records the caller of that method.
func (c *Core) Begin(ctx context.Context, w *Request) error {
	if err := c.Check(ctx); err != nil {
		return err
	}
	s := c.Registry.Session
	by, ended := owner.ForAcquire(ctx), ctx.Err() != nil // before anything is counted: they may panic
	switch {
	case !s.BeginRequest():
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: c.Keys.Lock}
	case ended: // even if the lock is free: the caller has gone
		s.EndRequest()
		return &lockerr.OpError{Op: "lock", Name: c.Keys.Lock, Err: session.CauseFor(ctx, c.Keys.Lock)}
	}
	w.Registry, w.State = c.Registry, c.Registry.AcquireRef(c.Keys.Lock)
	w.Name, w.Settings = c.Keys.Lock, c.Settings
	w.Owner, w.CallSite, w.began = by, acquisition.CallerSite(), Now()
	w.observeBegin(ctx)
	return nil
}

// WaitContext is [session.WaitContext] for the request.
func (r *Request) WaitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return session.WaitContext(ctx, r.Try, r.Settings.WaitTimeout)
}

// Close ends what Begin began. If the call leaves work, the background must have got it
// before, so that closing waits for one of the two.
func (r *Request) Close() {
	r.observeEnd(context.Background(), nil, acquisition.ErrAborted)
	r.Registry.ReleaseRef(r.Name, r.State)
	r.Session().EndRequest()
}

// NewHandle makes the user's handle of a hold, after replicas have acknowledged its grant if they
// must. ctx is that of the caller, which the context of the hold descends from. bounded ends with
// the wait. If the client closes, NewHandle releases the hold instead, because closing may have
// listed the held locks before this hold was there.
func (r *Request) NewHandle(ctx, bounded context.Context, h *acquisition.Hold, err error) (*lock.Hold, error) {
	if err == nil && !h.A.IsAcknowledged() {
		if err = h.Acknowledge(bounded); err == nil {
			r.State.AddHeld(h.A)
		}
	}
	if err == nil && r.Session().IsClosing() {
		r.Session().Background(func(ctx context.Context) { _ = h.A.Close(ctx) })
		err = &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: r.Name}
	}
	r.noteRefusal(bounded, err)
	r.observeEnd(ctx, h, err)
	if err != nil {
		return nil, err
	}
	return acquisition.NewHandle(ctx, h).(*lock.Hold), nil
}

// noteRefusal says in the error of a request where this client acquired the lock, if this client
// has it. The program may wait for itself. It also says why the request did not wait, if it should
// have.
func (r *Request) noteRefusal(bounded context.Context, err error) {
	refused, ok := err.(*lockerr.NotAcquiredError) //nolint:errorlint // one inside of another error is of another call
	if !ok {
		return
	}
	if refused.Err == nil {
		refused.Err = session.LateRefusal(bounded)
	}
	a := r.State.Holder()
	if a == nil || a.ID != refused.Holder {
		return
	}
	if site := a.OldestCallSite(); site.IsKnown() {
		refused.AcquiredAt = site.Short()
	}
}

// AcquireOrReenter makes the handle of a hold that re-enters the lock if the chain has it, and
// otherwise of the hold that acquire returns. If acquire returns ErrBeginAnew, it looks again. ctx
// and bounded are those of NewHandle.
func (r *Request) AcquireOrReenter(ctx, bounded context.Context, acquire func(bounded context.Context) (*acquisition.Hold, error)) (*lock.Hold, error) {
	for {
		h, has, err := r.ReenterHeld(bounded)
		if !has {
			h, err = acquire(bounded)
		}
		if has || !errors.Is(err, ErrBeginAnew) {
			return r.NewHandle(ctx, bounded, h, err)
		}
	}
}

// ReenterHeld adds a hold if the chain has the lock, and reports whether the chain has it. If the
// acquisition was released meanwhile, it reports false, and the request needs a fresh grant. But if
// the client closes, the error is ErrClosed, because closing releases locks without their chains.
func (r *Request) ReenterHeld(ctx context.Context) (h *acquisition.Hold, has bool, err error) {
	a := r.State.HeldBy(r.Owner)
	r.Source = event.Redis
	if a == nil {
		return nil, false, nil
	}
	r.Source = event.Reentry
	ctx, cancel := session.ReentryContext(ctx)
	defer cancel()
	h, err = a.Reenter(ctx, r.CallSite)
	if op, is := errors.AsType[*lockerr.OpError](err); is {
		op.Reentry = true
	}
	switch {
	case !errors.Is(err, acquisition.ErrAlreadyReleased):
		return h, true, err
	case r.Session().IsClosing():
		return nil, true, &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: r.Name}
	}
	r.Source = event.Redis
	return nil, false, nil
}

// Keys returns the keys of the lock. A request does not keep them, because a held lock keeps its
// request, and the keys of a name take more memory than all else that the name needs.
func (r *Request) Keys() *key.Mutex { return r.Registry.Keys(r.Name) }

// NewAcquisitionID returns an id for a fresh grant.
func (r *Request) NewAcquisitionID() string { return r.Session().NewAcquisitionID() }

// NewOperation returns how to send a command; see session.Operation. Other goroutines call it too,
// beside the Lock that waits: those that release in the background, and one that hands the lock on.
func (r *Request) NewOperation(op string) session.Operation {
	return session.Operation{Op: op, Name: r.Name, Primitive: r.Primitive, AttemptTimeout: r.Settings.AttemptTimeout(), Observer: r.State}
}

// NewLockOperation returns how to send a command of a Lock, which ends when the client begins to
// close.
func (r *Request) NewLockOperation() session.Operation {
	call := r.NewOperation("lock")
	call.StopOnClose = true
	return call
}

// NewWaitOperation returns how to send a request for a fresh grant. Only the goroutine that waits
// may call it.
func (r *Request) NewWaitOperation() session.Operation {
	call := r.NewLockOperation()
	call.MaybeApplied = r.maybeApplied
	return call
}

// NewReleaseOperation returns how to send a command of an Unlock. The client sends it again even if
// Redis refuses it, because a permission may come back before the lease ends.
func (r *Request) NewReleaseOperation() session.Operation {
	call := r.NewOperation("unlock")
	call.RetryRefused = true
	return call
}

// NoteExpired reports whether a request ended because its id must be given up. If so, it sets
// maybeApplied: the request may have taken effect.
func (r *Request) NoteExpired(err error) bool {
	expired := errors.Is(err, session.ErrWindowExpired)
	r.maybeApplied = r.maybeApplied || expired
	return expired
}

// Acquire asks Redis for the lock under an id, or for another hold of it. It calls lease before
// each attempt. If lease is nil, it is that of the settings.
func (r *Request) Acquire(ctx context.Context, id string, holds int, lease func() time.Duration) (session.Answer[lua.AcquireReply], error) {
	s := r.Session()
	if lease == nil {
		lease = func() time.Duration { return r.Settings.Lease }
	}
	call := r.NewLockOperation()
	if holds == 1 { // only the first hold is a fresh grant
		call = r.NewWaitOperation()
		r.State.NoteAsk()
		call.Window = r.Settings.Window()
	}
	keys := r.Keys().Args
	answer, err := session.Do(ctx, s, call,
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.AcquireReply, error) {
			return lua.Acquire(ctx, rdb, lua.AcquireParams{
				LockKey: keys.Lock, FenceKey: keys.Fence, QueueKey: keys.Queue,
				Acquisition: id, Lease: lease(), Holds: holds,
				VoidAfter: voidAfter, FenceRetention: s.FenceLife(r.Settings.Lease), Description: s.Description,
			})
		})
	if err == nil && holds == 1 && !strings.HasPrefix(answer.Value.Holder, s.ID) {
		r.maybeApplied = false // no acquisition of this client has what an earlier request may have got
	}
	return answer, err
}

// Release sends Redis the number of holds that are left. With none left, it frees the lock. If
// somebody is in the queue of the fair mutex, the first waiter then gets the lock.
//
// The answer that there are waiters may get lost with the reply to the command that freed the lock.
// Release, or a later Release of this request, then learns only that the lock is gone. It serves
// the queue in this case too.
func (r *Request) Release(ctx context.Context, id string, left int) (session.Answer[lua.ReleaseReply], error) {
	s := r.Session()
	keys := r.Keys().Args
	call := r.NewReleaseOperation().ForContext(ctx)
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
			return lua.Release(ctx, rdb, p)
		})
	if left > 0 {
		return answer, err
	}
	if answer.InFlight.Any() || answer.Value.HasWaiters { // a hook may end the goroutine before the queue is served
		r.maybeFreed.Store(true)
	}
	if answer.Value.HasWaiters || err == nil && answer.Value.Status == lua.Gone && r.maybeFreed.Load() {
		r.GrantQueued(ctx, r.NewOperation("unlock"))
	}
	return answer, err
}

// CleanUpID releases, in the background, what Redis has granted or may still grant under an id.
// release makes one attempt at it, and returns what became of the id.
func (r *Request) CleanUpID(id string, inFlight session.InFlight, release func(ctx context.Context, id string) (lua.Status, error)) {
	life := r.Settings.Lease
	if r.Primitive == event.FairMutex {
		life += r.Settings.Heartbeat // a place lasts a heartbeat without a lease, and may be granted at the end of it
	}
	r.Session().CleanUp(inFlight, life, r.attempt(id, release))
}

// RetryRelease goes on in the background with a release that failed with err. The release may have
// given the lock to id, for lease. RetryRelease releases it then. release makes one attempt at
// that, and returns what became of the id.
func (r *Request) RetryRelease(err error, id string, lease time.Duration, inFlight session.InFlight, release func(ctx context.Context, id string) (lua.Status, error)) {
	r.Session().RetryRelease(err, inFlight, lease, r.attempt(id, release))
}

// attempt bounds the release of an id by the time of one attempt. If that has freed the lock, the
// grant was a late one, of which the observers are notified.
func (r *Request) attempt(id string, release func(ctx context.Context, id string) (lua.Status, error)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, r.Session().AttemptTime(r.Name, r.Settings.AttemptTimeout()))
		defer cancel()
		status, err := release(ctx, id)
		if status == lua.Freed {
			r.NoteLateGrant(id)
		}
		return err
	}
}

// StartAcquisition makes the acquisition of a grant, and returns its first hold. Unless replicas
// must acknowledge the grant, it also makes the grant known to the other calls of the client, which
// may re-enter it. After a local handoff, another goroutine than that of the waiter calls it.
func (r *Request) StartAcquisition(k acquisition.MutexBackend, g acquisition.Grant) *acquisition.Hold {
	r.Registry.AcquireRef(r.Name) // for the acquisition, until RemoveAcquisition
	g.Name, g.Owner, g.Settings, g.Primitive, g.Units = r.Name, r.Owner, r.Settings, r.Primitive, 1
	h := acquisition.Start(r.Session(), k, g, &r.CallSite)
	if h.A.IsAcknowledged() {
		r.State.AddHeld(h.A)
	}
	return h
}

// RemoveAcquisition ends what StartAcquisition began.
func (r *Request) RemoveAcquisition(a *acquisition.Acquisition) {
	r.State.RemoveHeld(a)
	r.Registry.ReleaseRef(r.Name, r.State)
}

// TrustExpired reports whether trust in a grant was over when the grant arrived. The answer took
// that long, or the process was stopped. The caller then asks again, which extends the grant.
func (r *Request) TrustExpired(sent time.Time) bool {
	return time.Since(sent) >= r.Settings.Lease-r.Settings.Margin()
}

// WaitError returns the error of a wait that ended with err; see [session.WaitEnd]. last says what
// is known of the holder. If last names none, WaitError takes what Redis last answered to another
// waiter of this client. If there is no such answer, it names an acquisition of this client that
// has the lock.
func (r *Request) WaitError(ctx context.Context, err error, last lockerr.NotAcquiredError) error {
	if refusal := r.State.RefusalSince(r.began); refusal != nil && last.Holder == "" {
		last = *refusal
	}
	blocked, failure := last.Holder != "", r.State.LastFailure()
	a := r.State.Holder()
	if a == nil && !blocked && failure == nil && r.State.IsUnanswered(r.began) {
		failure = errOtherUnanswered // nobody knows whether anybody has the lock
	}
	if a != nil && !blocked {
		last.Holder, last.Description = a.ID, r.Session().Description
		last.Remaining = time.Until(a.TrustedUntil().Add(a.Settings.Margin()))
	}
	last.Name, last.Err = r.Name, session.Cause(ctx)
	return r.Session().WaitError(ctx, session.WaitEnd{
		Operation: r.NewLockOperation(), Err: err, LastFailure: failure, Blocked: blocked, NotAcquired: &last,
	})
}

// Reenter asks Redis for another hold. With SetHolds, it is the part of a MutexBackend that is the
// same for all kinds of mutex, because these guard the same key.
func (r *Request) Reenter(ctx context.Context, a *acquisition.Acquisition, holds int, lease func() time.Duration) (acquisition.HoldsUpdate, error) {
	answer, err := r.Acquire(ctx, a.ID, holds, lease)
	return acquisition.HoldsUpdate{Sent: answer.Sent, InFlight: answer.InFlight}, asErrGone(answer.Value.Status, err)
}

// SetHolds sends Redis the number of holds.
func (r *Request) SetHolds(ctx context.Context, a *acquisition.Acquisition, holds int) (acquisition.HoldsUpdate, error) {
	answer, err := r.Release(ctx, a.ID, holds)
	return acquisition.HoldsUpdate{Sent: answer.Sent, InFlight: answer.InFlight}, asErrGone(answer.Value.Status, err)
}

// Keep has Redis keep the lock.
func (r *Request) Keep(ctx context.Context, a *acquisition.Acquisition, k acquisition.Keep) (time.Time, session.InFlight, error) {
	answer, err := session.Do(ctx, r.Session(), r.NewReleaseOperation(),
		func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (lua.KeepReply, error) {
			return lua.Keep(ctx, rdb, lua.KeepParams{
				LockKey: r.Keys().Args.Lock, Acquisition: a.ID,
				Kept: k.ID, Number: k.Number, For: k.For, VoidAfter: voidAfter,
			})
		})
	if err == nil && answer.Value.Status == lua.Kept {
		r.Session().KeepFenceFor(r.Name, k.For, r.Keys().Args.Fence)
	}
	return answer.First, answer.InFlight, asErrGone(answer.Value.Status, err)
}

func asErrGone(status lua.Status, err error) error {
	if err == nil && status == lua.Gone {
		return acquisition.ErrGone
	}
	return err
}
