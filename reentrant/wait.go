package reentrant

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// await waits in the client's own queue for the turn, or for the lock itself.
func (w *want) await(ctx context.Context, wait *waiter) (given, error) {
	var suspect suspicion
	suspect.begin(w)
	defer suspect.stop()
	for {
		select {
		case g := <-wait.given:
			return g, nil
		case <-suspect.C:
			suspect.check()
			continue
		case <-ctx.Done():
		case <-w.family.session.Closing():
		}
		if g, got := w.l.leave(wait); got {
			w.passOn(g)
		}
		return given{}, w.gaveUp(ctx, lua.AcquireReply{})
	}
}

// passOn gives to others what a waiter got that had given up.
func (w *want) passOn(g given) {
	switch {
	case g.hold != nil:
		w.family.session.Background(func(ctx context.Context) { _ = g.hold.Unlock(ctx) })
	case g.turn:
		w.l.passTurn()
	}
}

// try asks Redis once for the lock.
func (w *want) try(ctx context.Context, turn bool) (*acquisition.Hold, error) {
	id := w.newID()
	answer, err := w.ask(ctx, id, 1, w.settings.Lease)
	switch {
	case err != nil:
	case answer.Value.Status == lua.Granted && !w.late(answer.Sent):
		return w.begin(id, answer.Value.Fence, answer.Sent, answer.Strays, turn), nil
	default:
		err = w.notAcquired(answer.Value, nil)
	}
	w.abandon(id, answer, turn)
	return nil, err
}

// contend asks Redis for the lock, with the turn, until it gets it or ctx ends.
func (w *want) contend(ctx context.Context) (*acquisition.Hold, error) {
	id := w.newID()
	p := patience{want: w}
	defer p.end()
	var answer session.Answer[lua.AcquireReply]
	var busy lua.AcquireReply // the last refusal
	err := p.stepAside(ctx)
	for err == nil {
		strays := answer.Strays
		answer, err = w.ask(ctx, id, 1, w.settings.Lease)
		answer.Strays = max(answer.Strays, strays)
		switch {
		case err != nil && ctx.Err() != nil && busy.Holder != "":
			// The end came while it asked once more; what it knows is who has it.
			err = w.gaveUp(ctx, busy)
		case err != nil:
		case answer.Value.Status == lua.Busy:
			busy = answer.Value
			err = p.wait(ctx, busy)
		case !w.late(answer.Sent):
			return w.begin(id, answer.Value.Fence, answer.Sent, answer.Strays, true), nil
		}
	}
	w.abandon(id, answer, true)
	return nil, err
}

// late reports whether the trust in a grant was over when it arrived: it took
// that long, or the process was stopped. It is asked for again then, which
// extends it.
func (w *want) late(sent time.Time) bool {
	return time.Since(sent) >= w.settings.Lease-w.settings.Margin()
}

// abandon leaves nothing behind of an attempt that failed: the turn goes on to
// the next, and what was granted or may yet be is given back.
func (w *want) abandon(id string, answer session.Answer[lua.AcquireReply], turn bool) {
	if turn {
		w.l.passTurn()
	}
	if answer.Strays != 0 || answer.Value.Status == lua.Granted {
		w.giveBack(id, answer.Strays)
	}
}

// gaveUp is the error of a wait that ended. If Redis could not be asked lately,
// that is what it says, and not that somebody else has the lock.
func (w *want) gaveUp(ctx context.Context, last lua.AcquireReply) error {
	if ctx.Err() == nil {
		return &lockerr.OpError{Kind: lockerr.ErrClosed, Op: "lock", Name: w.keys.Lock}
	}
	if fault := w.l.lastFault(); fault != nil {
		return &lockerr.OpError{Kind: lockerr.ErrUnavailable, Op: "lock", Name: w.keys.Lock, Err: errors.Join(session.Cause(ctx), fault)}
	}
	if a := w.l.holder(); a != nil && last.Holder == "" {
		last = lua.AcquireReply{Holder: a.ID, About: w.family.session.About, Remaining: time.Until(a.TrustedUntil())}
	}
	return w.notAcquired(last, session.Cause(ctx))
}

func (w *want) notAcquired(r lua.AcquireReply, cause error) error {
	return &lockerr.NotAcquiredError{
		Name: w.keys.Lock, Holder: r.Holder, Description: r.About, Remaining: r.Remaining, Err: cause,
	}
}
