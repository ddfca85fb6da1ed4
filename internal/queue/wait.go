package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
)

// How a wait can end without a grant.
var (
	errGone        = errors.New("the place in the queue is gone")
	ErrRemoved     = errors.New("removed from the queue")
	ErrInterrupted = errors.New("the wait was interrupted")
)

// LimitError is the end of a wait for more units than the limit, which was lowered.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string { return fmt.Sprintf("the limit is %d", e.Limit) }

// Wait is how to wait.
type Wait struct {
	// Place is told where the waiter stands, whenever that has changed, and whether it
	// had lost its place and queues again.
	Place func(place lua.Place, again bool)
	// Interrupt has Ends called, which may end the wait with ErrInterrupted. Ends and
	// Place may block: the place is kept meanwhile. A grant that comes then has to wait,
	// and ends with the heartbeat where that takes longer.
	Interrupt <-chan struct{}
	Ends      func() bool
	// Check is called when Suspect fires.
	Suspect <-chan time.Time
	Check   func()

	again bool
}

// wait waits after a join that was answered "queued", or granted too late to be
// trusted: until the waiter is granted, or has no place any more, or ctx ends. Its
// errors are errGone, and those of Contend.
func (w *waiter[B]) wait(ctx context.Context, joined session.Answer[lua.JoinReply], o Wait) (Grant, error) {
	w.ticket = joined.Value.Ticket
	w.answered(lua.BeatReply{Status: joined.Value.Status, Place: joined.Value.Place}, joined.Sent)
	w.keepAlive(joined.Sent)
	ask, err := w.subscribe(ctx)
	var shown lua.Place
	for err == nil {
		if ask {
			g, granted, err := w.ask(ctx)
			if err != nil || granted {
				return g, err
			}
		}
		now := w.look()
		if now.status == lua.Queued && differs(now.place, shown) {
			shown = now.place
			o.Place(shown, o.again)
			o.again = false
			if w.desk.session.IsClosing() {
				return Grant{}, context.Canceled
			}
		}
		switch {
		case now.status == lua.Gone:
			return Grant{}, errGone
		case now.status == lua.Removed:
			return Grant{}, ErrRemoved
		case now.status == lua.TooMany:
			return Grant{}, &LimitError{Limit: now.place.Limit}
		case now.lapsed:
			ask = true
		default:
			ask, err = w.sleep(ctx, now, o)
		}
	}
	return Grant{}, err
}

// subscribe listens, and waits until that is confirmed or known not to be; then
// beats have to do. A beat that is answered meanwhile ends the wait: it may say that
// the waiter was granted, and a grant that nobody takes soon ends. It reports whether
// a message may have been missed.
func (w *waiter[B]) subscribe(ctx context.Context) (missed bool, err error) {
	w.ear = w.desk.listen()
	if w.ear == w.before && w.ear.Live() {
		return false, nil
	}
	select {
	case <-w.news: // of the join's answer
	default:
	}
	if w.look().hinted {
		return true, nil
	}
	return true, w.ear.ReadyUnless(ctx, w.news)
}

// ask learns the truth. It alone takes a grant: Redis has it then for a whole lease
// from the question on. Otherwise the heartbeat begins anew.
func (w *waiter[B]) ask(ctx context.Context) (g Grant, granted bool, err error) {
	hinted := w.heard()
	answer, err := w.by.Ask(ctx, w.id)
	switch {
	case err != nil:
		return Grant{}, false, err
	case answer.Value.Status == lua.Granted && !w.by.Late(answer.Sent):
		return Grant{Fence: answer.Value.Fence, Sent: answer.Sent}, true, nil
	}
	w.answered(answer.Value, answer.Sent)
	if answer.Value.Status == lua.Queued {
		w.keepAlive(answer.Sent)
		if hinted {
			w.doubt()
		}
	}
	return Grant{}, false, nil
}

// doubt is called after a hint that proved false: when many come, hints do not count
// for a while. The first after a quiet time counts at once.
func (w *waiter[B]) doubt() {
	const quiet = time.Second
	now := time.Now()
	if now.Sub(w.heed) > quiet {
		w.flood = wake.Flood{}
	}
	w.heed = now.Add(w.flood.Pause())
}

// looks reports whether it is for this waiter to look at the end of the holder's
// lease, or of the first to end: nobody tells of that. One of each client does, and
// only when that end is near: while it is not, the next beat comes before it. It may
// not be the first of the queue, for behind waiters that died nobody knows that it is
// the first.
func (w *waiter[B]) looks(p lua.Place) bool {
	return p.Remaining >= 0 && p.Remaining <= w.spec.Heartbeat && w.desk.isFirst(w)
}

// asksAt is when the waiter asks unless there is news: upon a hint, or at the end of the
// holder's lease.
func (w *waiter[B]) asksAt(now look) (at time.Time, will bool) {
	if w.looks(now.place) {
		at, will = now.at.Add(now.place.Remaining+time.Millisecond), true
	}
	if now.hinted && (!will || w.heed.Before(at)) {
		at, will = w.heed, true
	}
	return at, will
}

// sleep waits for news, or until it is time to ask.
func (w *waiter[B]) sleep(ctx context.Context, now look, o Wait) (ask bool, err error) {
	var due <-chan time.Time
	if at, will := w.asksAt(now); will {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-w.news:
		return false, nil
	case <-due:
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
