package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// Contender wants what a queue stands before. It knows the scripts, and gives them
// what they are to be asked with.
type Contender[B any] interface {
	// Spec says who waits, under an id.
	Spec(id string) Spec[B]
	// Join asks, under an id, for what is wanted; unless it is a try, for a place in the
	// queue where others are in the way, with the ticket of the place it had before. Its
	// session.Call has a window, past which it fails with session.ErrExpired, and a pace, by
	// which attempts under the next id get longer.
	Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error)
	// Ask beats once for one waiter alone, until that is answered. What the id was
	// granted is extended to the whole lease by it. An attempt that goes unanswered is
	// sent again while what was granted is sure to stand.
	Ask(ctx context.Context, id string) (session.Answer[lua.BeatReply], error)
	// Late reports whether the trust in a grant that was asked for at that instant is
	// over.
	Late(sent time.Time) bool
	// GiveUp gives up, in the background, what an id has or may yet get: what is
	// wanted, or a place in the queue.
	GiveUp(id string, strays session.Strays)
}

// Grant is what a contender got, for a whole lease.
type Grant struct {
	ID     string
	Fence  int64
	Sent   time.Time // from when trust counts
	Strays session.Strays
}

// Try asks, and waits for nobody. It reports whether it was granted; if not, nothing is
// left behind. It asks again, while ctx lives, where more dead waiters stand in the queue
// than one command drops, and after a grant that came too late and has ended.
func (d *Desk[B]) Try(ctx context.Context, c Contender[B]) (g Grant, granted bool, err error) {
	for again := true; again; {
		g, again, err = d.tryOnce(ctx, c)
		if g.ID != "" || err != nil {
			return g, err == nil, err
		}
		again = again && ctx.Err() == nil
	}
	return Grant{}, false, nil
}

// tryOnce asks under one id; again says that the refusal means nothing. A grant without
// an ID is none.
func (d *Desk[B]) tryOnce(ctx context.Context, c Contender[B]) (g Grant, again bool, err error) {
	id := d.session.NewAcquisition()
	answer, err := c.Join(ctx, id, true)
	r, sent := answer.Value, answer.Sent
	got, fence := r.Status == lua.Granted, r.Fence
	// A holder in the last millisecond of its lease has 0 remaining too.
	dropping := r.Status == lua.Busy && r.Place.Holder == "" && r.Place.Remaining == 0
	again = err == nil && (got || dropping)
	for err == nil && got && c.Late(sent) && ctx.Err() == nil { // it may stand yet, and is extended then
		var asked session.Answer[lua.BeatReply]
		asked, err = c.Ask(ctx, id)
		got, fence, sent = err != nil || asked.Value.Status == lua.Granted, asked.Value.Fence, asked.Sent
	}
	if err == nil && got && !c.Late(sent) {
		return Grant{ID: id, Fence: fence, Sent: sent, Strays: answer.Strays}, false, nil
	}
	if got || answer.Strays.Any() {
		c.GiveUp(id, answer.Strays)
	}
	return Grant{}, again, err
}

// Contend joins the queue, and waits in it until the contender is granted what it
// wants, or ctx ends; then nothing is left behind. Its errors are ErrRemoved,
// *LimitError, ErrInterrupted, those of Join and Ask, the end of ctx, and
// context.Canceled when the client closes.
func (d *Desk[B]) Contend(ctx context.Context, c Contender[B], o Wait) (Grant, error) {
	for {
		g, err := d.contendOnce(ctx, c, o)
		switch {
		case errors.Is(err, errGone):
			// The server lost its data, or took this waiter for dead. The id may have been
			// granted and have ended: it is never used again. The ticket is.
			o.again = true
		case errors.Is(err, session.ErrExpired):
			// The same may have happened while no answer came.
		default:
			return g, err
		}
	}
}

// contendOnce contends under one id, until it has no place any more.
func (d *Desk[B]) contendOnce(ctx context.Context, c Contender[B], o Wait) (g Grant, err error) {
	id := d.session.NewAcquisition()
	w := d.enter(id, c)
	defer w.leave()
	answer, err := c.Join(ctx, id, false)
	has, kept := err == nil, false
	defer func() {
		if !kept && (has || answer.Strays.Any()) { // given up, or the user's notice panics
			c.GiveUp(id, answer.Strays)
		}
	}()
	place := o.Place
	o.Place = func(p lua.Place, again bool) {
		left := answer.Strays
		if !d.session.Outside(func() { place(p, again) }, func() { c.GiveUp(id, left) }) {
			has, answer.Strays = false, session.Strays{}
		}
	}
	switch r := answer.Value; {
	case err != nil:
		return Grant{}, err
	case r.Status == lua.Granted && !c.Late(answer.Sent):
		g = Grant{Fence: r.Fence, Sent: answer.Sent}
	default:
		g, err = w.wait(ctx, answer, o)
	}
	kept = err == nil
	g.ID, g.Strays = id, answer.Strays
	return g, err
}
