package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// How a wait can end without a grant.
var (
	errGone        = errors.New("the place in the queue is gone")
	ErrRemoved     = errors.New("removed from the queue")
	ErrInterrupted = errors.New("the wait was interrupted")
)

// Wait is how to wait.
type Wait struct {
	// Confirm has a grant that came by message asked for before it is used: the
	// lock is not renewed, or not for long, and needs its whole lease.
	Confirm bool
	// Place is told where the waiter stands, whenever that has changed, and whether it
	// had lost its place and queues again.
	Place func(place lua.Place, again bool)
	// Interrupt has Ends called, which may end the wait with ErrInterrupted. It may
	// block: the place is kept meanwhile. A grant that comes then has to wait for it,
	// and ends with the heartbeat where that takes longer.
	Interrupt <-chan struct{}
	Ends      func() bool
	// Check is called when Suspect fires.
	Suspect <-chan time.Time
	Check   func()

	again bool
}

// wait waits after a join that was answered "queued": until the waiter is
// granted, or has no place any more, or ctx ends. Its errors are errGone, and those
// of Contend.
func (w *waiter[B]) wait(ctx context.Context, joined time.Time, place lua.Place, o Wait) (Grant, error) {
	w.answered(lua.BeatReply{Status: lua.Queued, Place: place}, joined)
	w.keepAlive(joined)
	ask, err := w.subscribe(ctx)
	var shown lua.Place
	for err == nil {
		if ask {
			err = w.ask(ctx)
			if err != nil {
				break
			}
		}
		now := w.look()
		if now.status == lua.Queued && differs(now.place, shown) {
			shown = now.place
			o.Place(shown, o.again)
			o.again = false
		}
		switch {
		case now.status == lua.Gone:
			return Grant{}, errGone
		case now.status == lua.Removed:
			return Grant{}, ErrRemoved
		case now.status == lua.Granted && w.worth(now.grant, o):
			return now.grant, nil
		case now.status == lua.Granted, now.lapsed:
			ask = true
		default:
			ask, err = w.sleep(ctx, now, o)
		}
	}
	return Grant{}, err
}

// subscribe listens, and waits until that is confirmed or known not to be; then
// beats have to do. It reports whether a message may have been missed.
func (w *waiter[B]) subscribe(ctx context.Context) (missed bool, err error) {
	w.ear = w.desk.listen()
	if w.ear == w.before && w.ear.Live() {
		return false, nil
	}
	return true, w.ear.Ready(ctx)
}

// ask learns the truth, and begins the heartbeat anew.
func (w *waiter[B]) ask(ctx context.Context) error {
	doubted := w.look().status == lua.Granted
	answer, err := w.by.Ask(ctx, w.id)
	if err != nil {
		return err
	}
	w.answered(answer.Value, answer.Sent)
	if doubted && answer.Value.Status == lua.Queued {
		// The server lost that grant in a failover, and kept the queue.
		w.change(func() {
			if w.status == lua.Granted {
				w.status = lua.Queued
			}
		})
	}
	if answer.Value.Status == lua.Queued {
		w.keepAlive(answer.Sent)
	}
	return nil
}

// worth reports whether a grant can be begun as it is. One that came by message
// is when a third of the heartbeat is left, for the first renewal; one that hangs may
// take all of that.
func (w *waiter[B]) worth(g Grant, o Wait) bool {
	if g.First == 0 {
		return !w.by.Late(g.Sent)
	}
	left := time.Until(g.Sent.Add(g.First))
	return !o.Confirm && left >= w.spec.Heartbeat/3 && w.lease.Trusted()
}

// looks reports whether it is for this waiter to look at the end of the holder's
// lease, or of the first to end: nobody tells of that. One of each client does, and only when that end is
// near: while it is not, the next beat comes before it. It may not be the first of
// the queue, for behind waiters that died nobody knows that it is the first.
func (w *waiter[B]) looks(p lua.Place) bool {
	return p.Remaining >= 0 && p.Remaining <= w.spec.Heartbeat && (p.Handing() || w.desk.isFirst(w))
}

// sleep waits for news, or until it is time to ask.
func (w *waiter[B]) sleep(ctx context.Context, now look, o Wait) (ask bool, err error) {
	var end <-chan time.Time
	if p := now.place; w.looks(p) {
		timer := time.NewTimer(time.Until(now.at.Add(p.Remaining + time.Millisecond)))
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-w.news:
		return false, nil
	case <-end:
		return true, nil
	case <-o.Suspect:
		o.Check()
		return false, nil
	case <-o.Interrupt:
		if o.Ends() {
			return false, ErrInterrupted
		}
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.desk.session.Closing():
		return false, context.Canceled
	}
}

// differs reports whether there is something to tell.
func differs(a, b lua.Place) bool {
	return a.Position != b.Position || a.Length != b.Length || a.Holder != b.Holder
}
