package reentrant

import (
	"context"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// wait waits for the local lock, and then asks Redis for the lock until it has it. The lock may
// also come by a local handoff. ctx ends with the wait.
func (r *request) wait(ctx context.Context, warning *mutex.SelfDeadlockWarning) (*acquisition.Hold, error) {
	queued, localLock := r.queue.lockOrEnqueue(r)
	switch {
	case queued != nil:
		h, err := r.awaitHandoff(ctx, queued, warning)
		switch {
		case err == nil && h != nil && !h.Trusted():
			return nil, r.unlockUntrusted(ctx, h)
		case err != nil || h != nil:
			return h, err
		}
	case !localLock:
		return nil, mutex.ErrBeginAnew // the chain has got the lock by another call
	}
	return r.contend(ctx, warning)
}

// awaitHandoff waits in the client's own queue for a handoff of the lock, or for the local lock.
// With the local lock, the hold is nil.
func (r *request) awaitHandoff(ctx context.Context, wait *waiter, warning *mutex.SelfDeadlockWarning) (*acquisition.Hold, error) {
	warning.Start()
	own, stop := r.State.NotifyOnGrant(r.Owner)
	defer stop()
	isWaiting := true
	defer func() {
		if !isWaiting {
			return
		}
		if h, late := r.queue.cancelWait(wait); late { // a context or a logger of the user has panicked
			r.returnHandoff(h)
		}
	}()
	for {
		if r.queue.HeldBy(r.Owner) != nil && r.queue.withdraw(wait) {
			return nil, mutex.ErrBeginAnew
		}
		select {
		case h := <-wait.handoff:
			isWaiting = false
			return r.takeHandoff(h), nil
		case <-own:
			continue
		case <-warning.C:
			warning.Check()
			continue
		case <-ctx.Done():
		case <-r.Session().Closing():
		}
		isWaiting = false
		switch h, late := r.queue.cancelWait(wait); {
		case late && h != nil && !r.Session().IsClosing(): // it came as the wait ended
			return r.takeHandoff(h), nil
		case late:
			r.returnHandoff(h)
		}
		return nil, r.waitErrorAfter(ctx, ctx.Err(), lua.AcquireReply{})
	}
}

// takeHandoff notes what a waiter has got.
func (r *request) takeHandoff(h *acquisition.Hold) *acquisition.Hold {
	if h != nil {
		r.Source = event.Handoff
	}
	return h
}

// returnHandoff gives to others what a waiter got that had already given up.
func (r *request) returnHandoff(h *acquisition.Hold) {
	if h != nil {
		r.unlockLate(h)
		return
	}
	r.queue.passLocalLock()
}

// try asks Redis once for the lock. If someone waits in the queue of the lock, try hands the lock
// on and asks once more, because the waiters may all have expired. If a grant came too late to be
// trusted, that is no refusal, and try asks again. ErrBeginAnew says that the chain has got the
// lock meanwhile.
func (r *request) try(ctx context.Context) (*acquisition.Hold, error) {
	localLock, has := r.queue.tryLock(), false
	defer r.passLocalLockUnless(&has, localLock)
	for handedOn := false; ; {
		id := r.NewAcquisitionID()
		answer, err := r.acquire(ctx, id)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !r.TrustExpired(answer.Sent) {
			has = true
			g := acquisition.Grant{ID: id, Fence: answer.Value.Fence, Sent: answer.Sent, InFlight: answer.InFlight}
			return r.startHold(g, localLock, mutex.Now()), nil
		}
		if granted { // immediately: it would be in the way of the next attempt
			_, err = r.Release(ctx, id, 0)
			err = acquisition.WithOp(err, "lock")
		}
		if !granted || err != nil || answer.InFlight.Any() {
			r.discardAnswer(id, answer)
		}
		switch {
		case err != nil:
			return nil, err
		case granted:
		case answer.Value.Status == lua.QueueNotEmpty && !handedOn:
			handedOn = true
			r.GrantQueued(ctx, r.NewLockOperation())
		case r.State.HeldBy(r.Owner) != nil:
			return nil, mutex.ErrBeginAnew
		default:
			refused := r.notAcquired(answer.Value)
			return nil, &refused
		}
	}
}

// attach goes on with an exported lock.
func (r *request) attach(ctx context.Context, text string, localLock bool) (*acquisition.Hold, error) {
	has := false
	defer r.passLocalLockUnless(&has, localLock)
	g, err := r.Attach(ctx, text, r.CleanUp)
	if err != nil {
		return nil, err
	}
	has = true
	return r.startHold(g, localLock, mutex.Now()), nil
}

// passLocalLockUnless passes the local lock on, if the caller has it and it did not go with the
// lock. It also does so if a context or a logger of the user panics.
func (r *request) passLocalLockUnless(has *bool, localLock bool) {
	if localLock && !*has {
		r.queue.passLocalLock()
	}
}

// contend asks Redis for the lock, with the local lock held, until it gets it or ctx ends. Each
// attempt has a fresh id, because what an earlier one got, or may yet get, can have ended.
func (r *request) contend(ctx context.Context, warning *mutex.SelfDeadlockWarning) (*acquisition.Hold, error) {
	p := poller{request: r, warning: warning}
	defer p.stop()
	has := false
	defer r.passLocalLockUnless(&has, true)
	var busy lua.AcquireReply // the last refusal
	handedOn := false         // and nobody has taken the lock, or it was free again
	err := p.begin(ctx)
	for err == nil {
		id := r.NewAcquisitionID()
		var answer session.Answer[lua.AcquireReply]
		answer, err = r.acquire(ctx, id)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !r.TrustExpired(answer.Sent) {
			has = true
			g := acquisition.Grant{ID: id, Fence: answer.Value.Fence, Sent: answer.Sent, InFlight: answer.InFlight}
			return r.startHold(g, true, mutex.Now()), nil
		}
		r.discardAnswer(id, answer)
		switch {
		case granted, r.NoteExpired(err):
			err = nil
		case err != nil:
			err = r.waitErrorAfter(ctx, err, busy)
		case answer.Value.Status == lua.QueueNotEmpty && !handedOn:
			handedOn = true
			r.GrantQueued(ctx, r.NewLockOperation())
		default:
			busy, handedOn = answer.Value, false
			r.State.NoteRefusal(mutex.At(answer.Sent), r.notAcquired(busy))
			err = p.wait(ctx, busy)
		}
	}
	return nil, err
}

// acquire asks Redis for the lock under an id. If a hook of go-redis ends the goroutine, or a
// context of the user panics, the background releases what the id has got.
func (r *request) acquire(ctx context.Context, id string) (answer session.Answer[lua.AcquireReply], err error) {
	returned := false
	defer func() {
		if !returned {
			r.CleanUp(id, session.InFlight{})
		}
	}()
	answer, err = r.Acquire(ctx, id, 1, nil)
	returned = true
	return answer, err
}

// discardAnswer gives back what an attempt was granted, or may yet be granted.
func (r *request) discardAnswer(id string, answer session.Answer[lua.AcquireReply]) {
	if answer.InFlight.Any() || answer.Value.Status == lua.Granted {
		r.CleanUp(id, answer.InFlight)
	}
}

// waitErrorAfter returns the error of a wait that ended.
func (r *request) waitErrorAfter(ctx context.Context, err error, last lua.AcquireReply) error {
	return r.WaitError(ctx, err, r.notAcquired(last))
}

// notAcquired returns what a refusal says.
func (r *request) notAcquired(refusal lua.AcquireReply) lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{Name: r.Name, Holder: refusal.Holder, Description: refusal.Description, Remaining: refusal.Remaining}
}
