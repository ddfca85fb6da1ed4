package reentrant

import (
	"context"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// await waits in the client's own queue for the turn, or for the lock itself.
func (w *request) await(ctx context.Context, wait *waiter, suspect *mutex.Suspicion) (given, error) {
	suspect.Begin()
	own, stop := w.State.NotifyOnGrant(w.Owner)
	defer stop()
	got := false
	defer func() {
		if got {
			return
		}
		if g, late := w.l.leave(wait); late {
			w.passOn(g)
		}
	}()
	for {
		if w.l.HeldBy(w.Owner) != nil && w.l.withdraw(wait) {
			return given{}, mutex.ErrOwnChain
		}
		select {
		case g := <-wait.given:
			got = true
			return g, nil
		case <-own:
			continue
		case <-suspect.C:
			suspect.Check()
			continue
		case <-ctx.Done():
		case <-w.Session.Closing():
		}
		return given{}, w.gaveUp(ctx, ctx.Err(), lua.AcquireReply{})
	}
}

// passOn gives to others what a waiter got that had already given up.
func (w *request) passOn(g given) {
	switch {
	case g.hold != nil:
		w.Session.Background(func(ctx context.Context) { _ = g.hold.Unlock(ctx) })
	case g.turn:
		w.l.passTurn()
	}
}

// try asks Redis once for the lock. If someone waits in the queue of the lock, try hands the lock
// on and asks once more, because the waiters may all be dead. If a grant came too late to be
// trusted, that is no refusal, and try asks again. ErrOwnChain says that the chain has got the lock
// meanwhile.
func (w *request) try(ctx context.Context, turn bool) (*acquisition.Hold, error) {
	has := false
	defer w.passTurnUnless(&has, turn)
	for handedOn := false; ; {
		id := w.NewAcquisitionID()
		answer, err := w.Acquire(ctx, id, 1, w.Settings.Lease)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !w.Late(answer.Sent) {
			has = true
			return w.begin(id, answer.Value.Fence, answer.Sent, answer.InFlight, turn), nil
		}
		if granted { // immediately: it would be in the way of the next attempt
			_, err = w.Release(ctx, id, 0)
		}
		if !granted || err != nil || answer.InFlight.Any() {
			w.discardAnswer(id, answer)
		}
		switch {
		case err != nil:
			return nil, err
		case granted:
		case answer.Value.Status == lua.Behind && !handedOn:
			handedOn = true
			w.HandOn(ctx, "lock")
		case w.State.HeldBy(w.Owner) != nil:
			return nil, mutex.ErrOwnChain
		default:
			refused := w.notAcquired(answer.Value)
			return nil, &refused
		}
	}
}

// passTurnUnless passes the turn on, if there is one and it did not go with the lock. It also does
// so if a context or a logger of the user panics.
func (w *request) passTurnUnless(has *bool, turn bool) {
	if turn && !*has {
		w.l.passTurn()
	}
}

// contend asks Redis for the lock, with the turn, until it gets it or ctx ends. Each attempt has a
// fresh id, because what an earlier one got, or may yet get, can have ended.
func (w *request) contend(ctx context.Context, suspect *mutex.Suspicion) (*acquisition.Hold, error) {
	p := patience{request: w, suspect: suspect}
	defer p.end()
	has := false
	defer w.passTurnUnless(&has, true)
	var busy lua.AcquireReply // the last refusal
	handedOn := false         // and nobody has taken the lock, or it was free again
	err := p.yield(ctx)
	for err == nil {
		id := w.NewAcquisitionID()
		var answer session.Answer[lua.AcquireReply]
		answer, err = w.Acquire(ctx, id, 1, w.Settings.Lease)
		granted := err == nil && answer.Value.Status == lua.Granted
		if granted && !w.Late(answer.Sent) {
			has = true
			return w.begin(id, answer.Value.Fence, answer.Sent, answer.InFlight, true), nil
		}
		w.discardAnswer(id, answer)
		switch {
		case granted, w.Expired(err):
			err = nil
		case err != nil:
			err = w.gaveUp(ctx, err, busy)
		case answer.Value.Status == lua.Behind && !handedOn:
			handedOn = true
			w.HandOn(ctx, "lock")
		default:
			busy, handedOn = answer.Value, false
			err = p.wait(ctx, busy)
		}
	}
	return nil, err
}

// discardAnswer gives back what an attempt was granted, or may yet be granted.
func (w *request) discardAnswer(id string, answer session.Answer[lua.AcquireReply]) {
	if answer.InFlight.Any() || answer.Value.Status == lua.Granted {
		w.CleanUp(id, answer.InFlight)
	}
}

// gaveUp returns the error of a wait that ended.
func (w *request) gaveUp(ctx context.Context, err error, last lua.AcquireReply) error {
	return w.GaveUp(ctx, err, w.notAcquired(last))
}

// notAcquired returns what a refusal says.
func (w *request) notAcquired(r lua.AcquireReply) lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{Name: w.Keys.Lock, Holder: r.Holder, Description: r.About, Remaining: r.Remaining}
}
