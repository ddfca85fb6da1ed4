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
	// queue where others are in the way, with the ticket of the place it had before.
	Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error)
	// Ask beats once for one waiter alone, until that is answered.
	Ask(ctx context.Context, id string) (session.Answer[lua.BeatReply], error)
	// Late reports whether the trust in a grant of a whole lease, asked for at that
	// instant, is over.
	Late(sent time.Time) bool
	// GiveUp gives up, in the background, what an id has or may yet get: what is
	// wanted, or a place in the queue.
	GiveUp(id string, strays session.Strays)
}

// Grant is what a contender got.
type Grant struct {
	ID     string
	Fence  int64
	Sent   time.Time     // from when trust counts
	First  time.Duration // how long it lasts at first; 0: the whole lease, less its margin
	Strays session.Strays
}

// Try asks once, and waits for nothing. It reports whether that was granted; if not,
// nothing is left behind.
func (d *Desk[B]) Try(ctx context.Context, c Contender[B]) (g Grant, granted bool, err error) {
	id := d.session.NewAcquisition()
	answer, err := c.Join(ctx, id, true)
	got := answer.Value.Status == lua.Granted
	if err == nil && got && !c.Late(answer.Sent) {
		return Grant{ID: id, Fence: answer.Value.Fence, Sent: answer.Sent, Strays: answer.Strays}, true, nil
	}
	if got || answer.Strays.Any() {
		c.GiveUp(id, answer.Strays)
	}
	return Grant{}, false, err
}

// Contend joins the queue, and waits in it until the contender is granted what it
// wants, or ctx ends; then nothing is left behind. Its errors are ErrRemoved,
// ErrInterrupted, those of Join and Ask, the end of ctx, and context.Canceled when
// the client closes.
func (d *Desk[B]) Contend(ctx context.Context, c Contender[B], o Wait) (Grant, error) {
	for {
		g, err := d.contendOnce(ctx, c, o)
		if !errors.Is(err, errGone) {
			return g, err
		}
		// The server lost its data, or took this waiter for dead, or the limit of a
		// semaphore was lowered. The id may have been granted and have ended: it is
		// never used again. The ticket is.
		o.again = true
	}
}

// contendOnce contends under one id, until it has no place any more.
func (d *Desk[B]) contendOnce(ctx context.Context, c Contender[B], o Wait) (g Grant, err error) {
	id := d.session.NewAcquisition()
	w := d.enter(id, c)
	defer w.leave()
	var strays session.Strays
	has, kept := false, false
	defer func() {
		if !kept && (has || strays.Any()) { // given up, or the user's notice panics
			c.GiveUp(id, strays)
		}
	}()
	for {
		answer, err := c.Join(ctx, id, false)
		strays = strays.And(answer.Strays)
		if err != nil {
			return Grant{}, err
		}
		has = true
		switch r := answer.Value; {
		case r.Status != lua.Granted:
			g, err = w.wait(ctx, answer.Sent, r.Place, o)
		case c.Late(answer.Sent):
			continue // asked for again, which extends it
		default:
			g = Grant{Fence: r.Fence, Sent: answer.Sent}
		}
		kept = err == nil
		g.ID, g.Strays = id, strays
		return g, err
	}
}
