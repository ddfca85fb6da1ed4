package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// Request is a request for what a queue leads to: a lock, or units. It knows the scripts, and
// their parameters.
type Request[B any] interface {
	// Spec describes the waiter with this id.
	Spec(id string) Spec[B]
	// Join asks for the lock or the units, under an id. If others are in the way, it asks for a
	// place in the queue, unless try is true. It sends the ticket of the place that the request had
	// before. Its session.Operation has a window, after which Join fails with
	// session.ErrWindowExpired. It also has a pace, by which attempts under the next id get longer.
	Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error)
	// Claim sends one heartbeat for one waiter alone, and retries until Redis answers. It extends
	// what the id was granted to the whole lease. It repeats an unanswered attempt while the grant
	// is certain to stand.
	Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error)
	// TrustExpired reports whether trust is over in a grant whose command was sent at that time.
	TrustExpired(sent time.Time) bool
	// CleanUp releases, in the background, what an id has or may still get: the grant, or a place
	// in the queue.
	CleanUp(id string, inFlight session.InFlight)
}

// Grant is the grant of a request, for a whole lease.
type Grant struct {
	ID       string
	Fence    int64
	Sent     time.Time // when trust begins
	InFlight session.InFlight
}

// TryJoin asks, and waits for nobody. It reports whether it was granted. If not, it leaves nothing
// behind. TryJoin asks again, until ctx ends, if the queue has more expired waiters than one command
// drops. It also asks again if a grant came too late and has ended.
func (d *WaiterSet[B]) TryJoin(ctx context.Context, c Request[B]) (g Grant, granted bool, err error) {
	for again := true; again; {
		g, again, err = d.tryJoinOnce(ctx, c)
		if g.ID != "" || err != nil {
			return g, err == nil, err
		}
	}
	return Grant{}, false, nil
}

// tryJoinOnce asks under one id. again says that the refusal means nothing. A Grant without an ID
// says that nothing was granted.
func (d *WaiterSet[B]) tryJoinOnce(ctx context.Context, c Request[B]) (g Grant, again bool, err error) {
	id := d.session.NewAcquisitionID()
	answer, err := c.Join(ctx, id, true)
	r, sent := answer.Value, answer.Sent
	got, fence := r.Status == lua.Granted, r.Fence
	// A holder in the last millisecond of its lease has 0 remaining too.
	dropping := r.Status == lua.Busy && r.QueueState.Holder == "" && r.QueueState.Remaining == 0
	again = err == nil && (got || dropping)
	for err == nil && got && c.TrustExpired(sent) && ctx.Err() == nil { // it may still stand; Ask extends it
		var asked session.Answer[lua.HeartbeatReply]
		asked, err = c.Claim(ctx, id)
		got, fence, sent = err != nil || asked.Value.Status == lua.Granted, asked.Value.Fence, asked.Sent
	}
	if err == nil && got && !c.TrustExpired(sent) {
		return Grant{ID: id, Fence: fence, Sent: sent, InFlight: answer.InFlight}, false, nil
	}
	if got || answer.InFlight.Any() {
		c.CleanUp(id, answer.InFlight)
	}
	return Grant{}, again, err
}

// JoinAndWait joins the queue, and waits in it until the request is granted what it asks for, or
// ctx ends. Without a grant it leaves nothing behind. Its errors are ErrRemoved, *LimitError,
// ErrInterrupted, those of Join and Ask, the end of ctx, and context.Canceled if the client closes.
func (d *WaiterSet[B]) JoinAndWait(ctx context.Context, c Request[B], o WaitOptions) (Grant, error) {
	for {
		g, err := d.joinAndWaitOnce(ctx, c, o)
		switch {
		case errors.Is(err, errPlaceLost):
			// The server lost its data, or dropped this waiter as expired. The id may have been
			// granted and have ended, so it is never used again. The ticket is used again.
			o.requeued = true
		case errors.Is(err, session.ErrWindowExpired):
			// The same may have happened while no answer came.
		default:
			return g, err
		}
	}
}

// joinAndWaitOnce contends under one id, until the id has no place any more.
func (d *WaiterSet[B]) joinAndWaitOnce(ctx context.Context, c Request[B], o WaitOptions) (g Grant, err error) {
	id := d.session.NewAcquisitionID()
	w := d.addWaiter(id, c)
	defer w.stop()
	answer, err := c.Join(ctx, id, false)
	has, kept := err == nil, false
	defer func() {
		if !kept && (has || answer.InFlight.Any()) { // given up, or the user's notice panics
			c.CleanUp(id, answer.InFlight)
		}
	}()
	place := o.OnChange
	o.OnChange = func(p lua.QueueState, again bool) {
		left := answer.InFlight
		if !d.session.RunCallback(func() { place(p, again) }, func() { c.CleanUp(id, left) }) {
			has, answer.InFlight = false, session.InFlight{}
		}
	}
	switch r := answer.Value; {
	case err != nil:
		return Grant{}, err
	case r.Status == lua.Granted && !c.TrustExpired(answer.Sent):
		g = Grant{Fence: r.Fence, Sent: answer.Sent}
	default:
		g, err = w.wait(ctx, answer, o)
	}
	kept = err == nil
	g.ID, g.InFlight = id, answer.InFlight
	return g, err
}
