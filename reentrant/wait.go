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
func (w *want) await(ctx context.Context, wait *waiter, suspect *mutex.Suspicion) (given, error) {
	suspect.Begin()
	own, stop := w.Record.Watch(w.Owner)
	defer stop()
	for {
		if w.l.HeldBy(w.Owner) != nil && w.l.withdraw(wait) {
			return given{}, mutex.ErrOwnChain
		}
		select {
		case g := <-wait.given:
			return g, nil
		case <-own:
			continue
		case <-suspect.C:
			suspect.Check()
			continue
		case <-ctx.Done():
		case <-w.Session.Closing():
		}
		if g, got := w.l.leave(wait); got {
			w.passOn(g)
		}
		return given{}, w.gaveUp(ctx, ctx.Err(), lua.AcquireReply{})
	}
}

// passOn gives to others what a waiter got that had given up.
func (w *want) passOn(g given) {
	switch {
	case g.hold != nil:
		w.Session.Background(func(ctx context.Context) { _ = g.hold.Unlock(ctx) })
	case g.turn:
		w.l.passTurn()
	}
}

// try asks Redis once for the lock.
func (w *want) try(ctx context.Context, turn bool) (*acquisition.Hold, error) {
	id := w.NewID()
	answer, err := w.Acquire(ctx, id, 1, w.Settings.Lease)
	switch {
	case err != nil:
	case answer.Value.Status == lua.Granted && !w.Late(answer.Sent):
		return w.begin(id, answer.Value.Fence, answer.Sent, answer.Strays, turn), nil
	default:
		refused := w.notAcquired(answer.Value)
		err = &refused
	}
	w.abandon(id, answer, turn)
	return nil, err
}

// contend asks Redis for the lock, with the turn, until it gets it or ctx ends.
func (w *want) contend(ctx context.Context, suspect *mutex.Suspicion) (*acquisition.Hold, error) {
	id := w.NewID()
	p := patience{want: w, suspect: suspect}
	defer p.end()
	var answer session.Answer[lua.AcquireReply]
	var busy lua.AcquireReply // the last refusal
	err := p.stepAside(ctx)
	for err == nil {
		strays := answer.Strays
		answer, err = w.Acquire(ctx, id, 1, w.Settings.Lease)
		answer.Strays = strays.And(answer.Strays)
		switch {
		case err != nil:
			err = w.gaveUp(ctx, err, busy)
		case answer.Value.Status == lua.Busy:
			busy = answer.Value
			err = p.wait(ctx, busy)
		case !w.Late(answer.Sent):
			return w.begin(id, answer.Value.Fence, answer.Sent, answer.Strays, true), nil
		}
	}
	w.abandon(id, answer, true)
	return nil, err
}

// abandon leaves nothing behind of an attempt that failed: the turn goes on to
// the next, and what was granted or may yet be is given back.
func (w *want) abandon(id string, answer session.Answer[lua.AcquireReply], turn bool) {
	if turn {
		w.l.passTurn()
	}
	if answer.Strays.Any() || answer.Value.Status == lua.Granted {
		w.giveBack(id, answer.Strays, nil)
	}
}

// gaveUp is the error of a wait that ended.
func (w *want) gaveUp(ctx context.Context, err error, last lua.AcquireReply) error {
	return w.GaveUp(ctx, err, w.notAcquired(last))
}

// notAcquired is what a refusal says.
func (w *want) notAcquired(r lua.AcquireReply) lockerr.NotAcquiredError {
	return lockerr.NotAcquiredError{Name: w.Keys.Lock, Holder: r.Holder, Description: r.About, Remaining: r.Remaining}
}
