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

// awaitHandoff waits in the client's own queue for the local lock, or for a handoff of the lock.
func (w *request) awaitHandoff(ctx context.Context, wait *waiter, warning *mutex.SelfDeadlockWarning) (handoff, error) {
	warning.Start()
	own, stop := w.State.NotifyOnGrant(w.Owner)
	defer stop()
	isWaiting := true
	defer func() {
		if !isWaiting {
			return
		}
		if g, late := w.queue.cancelWait(wait); late { // a context or a logger of the user has panicked
			w.returnHandoff(g)
		}
	}()
	for {
		if w.queue.HeldBy(w.Owner) != nil && w.queue.withdraw(wait) {
			return handoff{}, mutex.ErrOwnerHolds
		}
		select {
		case g := <-wait.handoff:
			isWaiting = false
			return w.takeHandoff(g), nil
		case <-own:
			continue
		case <-warning.C:
			warning.Check()
			continue
		case <-ctx.Done():
		case <-w.Session().Closing():
		}
		isWaiting = false
		switch g, late := w.queue.cancelWait(wait); {
		case late && g.hold != nil && !w.Session().IsClosing(): // it came as the wait ended
			return w.takeHandoff(g), nil
		case late:
			w.returnHandoff(g)
		}
		return handoff{}, w.waitErrorAfter(ctx, ctx.Err(), lua.AcquireReply{})
	}
}

// takeHandoff notes what a waiter has got.
func (w *request) takeHandoff(g handoff) handoff {
	if g.hold != nil {
		w.Source = event.Handoff
	}
	return g
}

// returnHandoff gives to others what a waiter got that had already given up.
func (w *request) returnHandoff(g handoff) {
	switch {
	case g.hold != nil:
		w.unlockLate(g.hold)
	case g.localLock:
		w.queue.passLocalLock()
	}
}

// try asks Redis once for the lock. If someone waits in the queue of the lock, try hands the lock
// on and asks once more, because the waiters may all have expired. If a grant came too late to be
// trusted, that is no refusal, and try asks again. ErrOwnerHolds says that the chain has got the
// lock meanwhile.
func (w *request) try(ctx context.Context, localLock bool) (*acquisition.Hold, error) {
	has := false
	defer w.passLocalLockUnless(&has, localLock)
	for handedOn := false; ; {
		id := w.NewAcquisitionID()
		answer, err := w.acquire(ctx, id)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !w.TrustExpired(answer.Sent) {
			has = true
			return w.startHold(id, answer.Value.Fence, answer.Sent, answer.InFlight, localLock, mutex.Now()), nil
		}
		if granted { // immediately: it would be in the way of the next attempt
			_, err = w.Release(ctx, id, 0)
			err = ofLock(err)
		}
		if !granted || err != nil || answer.InFlight.Any() {
			w.discardAnswer(id, answer)
		}
		switch {
		case err != nil:
			return nil, err
		case granted:
		case answer.Value.Status == lua.QueueNotEmpty && !handedOn:
			handedOn = true
			w.GrantQueued(ctx, "lock")
		case w.State.HeldBy(w.Owner) != nil:
			return nil, mutex.ErrOwnerHolds
		default:
			refused := w.notAcquired(answer.Value)
			return nil, &refused
		}
	}
}

// ofLock names the lock as the operation, in the error of a release that the program did not ask for.
func ofLock(err error) error {
	failed, ok := err.(*lockerr.OpError) //nolint:errorlint // not one that it wraps, which may be of another call
	if !ok {
		return err
	}
	named := *failed
	named.Op = "lock"
	return &named
}

// attach goes on with an exported lock.
func (w *request) attach(ctx context.Context, text string, localLock bool) (*acquisition.Hold, error) {
	has := false
	defer w.passLocalLockUnless(&has, localLock)
	g, err := w.Attach(ctx, text, w.CleanUp)
	if err != nil {
		return nil, err
	}
	has = true
	return w.startHold(g.ID, g.Fence, g.Sent, g.InFlight, localLock, mutex.Now()), nil
}

// passLocalLockUnless passes the local lock on, if the caller has it and it did not go with the
// lock. It also does so if a context or a logger of the user panics.
func (w *request) passLocalLockUnless(has *bool, localLock bool) {
	if localLock && !*has {
		w.queue.passLocalLock()
	}
}

// contend asks Redis for the lock, with the local lock held, until it gets it or ctx ends. Each
// attempt has a fresh id, because what an earlier one got, or may yet get, can have ended.
func (w *request) contend(ctx context.Context, warning *mutex.SelfDeadlockWarning) (*acquisition.Hold, error) {
	p := poller{request: w, warning: warning}
	defer p.stop()
	has := false
	defer w.passLocalLockUnless(&has, true)
	var busy lua.AcquireReply // the last refusal
	handedOn := false         // and nobody has taken the lock, or it was free again
	err := p.begin(ctx)
	for err == nil {
		id := w.NewAcquisitionID()
		var answer session.Answer[lua.AcquireReply]
		answer, err = w.acquire(ctx, id)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !w.TrustExpired(answer.Sent) {
			has = true
			return w.startHold(id, answer.Value.Fence, answer.Sent, answer.InFlight, true, mutex.Now()), nil
		}
		w.discardAnswer(id, answer)
		switch {
		case granted, w.NoteExpired(err):
			err = nil
		case err != nil:
			err = w.waitErrorAfter(ctx, err, busy)
		case answer.Value.Status == lua.QueueNotEmpty && !handedOn:
			handedOn = true
			w.GrantQueued(ctx, "lock")
		default:
			busy, handedOn = answer.Value, false
			w.State.NoteRefusal(mutex.At(answer.Sent), w.notAcquired(busy))
			err = p.wait(ctx, busy)
		}
	}
	return nil, err
}

// acquire asks Redis for the lock under an id. If a hook of go-redis ends the goroutine, or a context of
// the user panics, the background releases what the id has got.
func (w *request) acquire(ctx context.Context, id string) (answer session.Answer[lua.AcquireReply], err error) {
	returned := false
	defer func() {
		if !returned {
			w.CleanUp(id, session.InFlight{})
		}
	}()
	answer, err = w.Acquire(ctx, id, 1, nil)
	returned = true
	return answer, err
}

// discardAnswer gives back what an attempt was granted, or may yet be granted.
func (w *request) discardAnswer(id string, answer session.Answer[lua.AcquireReply]) {
	if answer.InFlight.Any() || answer.Value.Status == lua.Granted {
		w.CleanUp(id, answer.InFlight)
	}
}

// waitErrorAfter returns the error of a wait that ended.
func (w *request) waitErrorAfter(ctx context.Context, err error, last lua.AcquireReply) error {
	return w.WaitError(ctx, err, w.notAcquired(last))
}

// notAcquired returns what a refusal says.
func (w *request) notAcquired(r lua.AcquireReply) lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{Name: w.Name, Holder: r.Holder, Description: r.Description, Remaining: r.Remaining}
}
