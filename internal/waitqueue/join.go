package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lua"
)

// Request is a request for a lock or for units that has a queue in Redis. The packages fair and
// semaphore implement it with their scripts.
type Request[B any] interface {
	// Spec describes the waiter with this id.
	Spec(id string) Spec[B]
	// Join asks Redis for the lock or the units, under an id. If Redis does not grant them, Join
	// asks for a place in the queue, unless try is true. It sends the ticket of the place that the
	// request had before. It blocks until Redis answers. Its session.Operation has a Window, after
	// which Join fails with session.ErrWindowExpired. It also has an AdaptiveTimeout, so that
	// attempts under the next id get more time.
	Join(ctx context.Context, id string, try bool) (session.Answer[lua.JoinReply], error)
	// Claim sends one heartbeat for this waiter alone, and blocks until Redis answers. Unlike other
	// heartbeats, it extends a grant of the id to the whole lease. It repeats an attempt without an
	// answer while the grant certainly lasts.
	Claim(ctx context.Context, id string) (session.Answer[lua.HeartbeatReply], error)
	// Event returns an event of the request, with what the observers must know of it.
	Event(kind event.Kind) event.Event
	// TrustExpired reports whether trust has ended in a grant whose command was sent at sent.
	TrustExpired(sent time.Time) bool
	// CleanUp releases, in the background, what the id has or may still get: the grant, or a place
	// in the queue.
	CleanUp(id string, inFlight session.InFlight)
}

// TryJoin asks Redis for a grant of a whole lease, without a place in the queue. It blocks until
// Redis answers, and reports whether there is a grant. It asks again, until ctx ends, if the queue
// has more expired waiters than one command drops, or if a grant came too late and has ended. What
// an id without a grant may still get, TryJoin releases in the background.
func (s *WaiterSet[B]) TryJoin(ctx context.Context, c Request[B]) (g acquisition.Grant, granted bool, err error) {
	for again := true; again; {
		g, again, err = s.tryJoinOnce(ctx, c)
		if g.ID != "" || err != nil {
			return g, err == nil, err
		}
	}
	return acquisition.Grant{}, false, nil
}

// tryJoinOnce asks under one id. again says that the caller must ask under another id, because the
// refusal is not final. If there is no grant, the ID of the result is empty.
func (s *WaiterSet[B]) tryJoinOnce(ctx context.Context, c Request[B]) (g acquisition.Grant, again bool, err error) {
	id := s.session.NewAcquisitionID()
	answer, err := joinOnce(ctx, c, id, true)
	r, sent := answer.Value, answer.Sent
	got, fence := r.Status == lua.Granted, r.Fence
	// A holder in the last millisecond of its lease has 0 remaining too, but its name is not empty.
	dropping := r.Status == lua.Busy && r.QueueState.Holder == "" && r.QueueState.Remaining == 0
	again = err == nil && (got || dropping)
	for err == nil && got && c.TrustExpired(sent) && ctx.Err() == nil { // the grant may still last
		var asked session.Answer[lua.HeartbeatReply]
		asked, err = c.Claim(ctx, id)
		got, fence, sent = err != nil || asked.Value.Status == lua.Granted, asked.Value.Fence, asked.Sent
	}
	if err == nil && got && !c.TrustExpired(sent) {
		return acquisition.Grant{ID: id, Fence: fence, Sent: sent, InFlight: answer.InFlight}, false, nil
	}
	if got || answer.InFlight.Any() {
		c.CleanUp(id, answer.InFlight)
	}
	return acquisition.Grant{}, again, err
}

// joinOnce asks Redis under an id. If a hook of go-redis ends the goroutine, or a context of the
// user panics, the background releases what the id has got.
func joinOnce[B any](ctx context.Context, c Request[B], id string, try bool) (session.Answer[lua.JoinReply], error) {
	returned := false
	defer func() {
		if !returned {
			c.CleanUp(id, session.InFlight{})
		}
	}()
	answer, err := c.Join(ctx, id, try)
	returned = true
	return answer, err
}

// JoinAndWait joins the queue. It blocks until Redis grants the request what it asks for, for a
// whole lease, or ctx ends. If there is no grant, it gives up the place in the background.
//
// Its errors are ErrRemoved, *LimitError, ErrInterrupted, those of Join and Claim, and the end of
// ctx. If the client closes, the error may be context.Canceled.
func (s *WaiterSet[B]) JoinAndWait(ctx context.Context, c Request[B], o WaitOptions) (acquisition.Grant, error) {
	for {
		g, err := s.joinAndWaitOnce(ctx, c, o)
		switch {
		case errors.Is(err, errPlaceLost):
			// The server lost its data, or dropped this waiter as expired. Redis may have made a
			// grant to the id, and the grant may have ended. So JoinAndWait never uses the id
			// again. It uses the ticket again.
			o.requeued = true
		case errors.Is(err, session.ErrWindowExpired):
			// The same may have happened while no answer came.
		default:
			return g, err
		}
	}
}

// joinAndWaitOnce joins and waits under one id, until the id has a grant or no place any more.
func (s *WaiterSet[B]) joinAndWaitOnce(ctx context.Context, c Request[B], o WaitOptions) (g acquisition.Grant, err error) {
	id := s.session.NewAcquisitionID()
	w := s.addWaiter(id, c)
	defer w.stop()
	answer, err := joinOnce(ctx, c, id, false)
	has, kept := err == nil, false
	defer func() {
		if !kept && (has || answer.InFlight.Any()) { // given up, or the user's notice panics
			c.CleanUp(id, answer.InFlight)
		}
	}()
	place := o.OnChange
	o.OnChange = func(id string, p lua.QueueState, again bool) {
		left := answer.InFlight
		changed := func() {
			s.observePlace(ctx, c, p)
			place(id, p, again)
		}
		if !s.session.RunCallback(changed, func() { c.CleanUp(id, left) }) {
			has, answer.InFlight = false, session.InFlight{}
		}
	}
	switch r := answer.Value; {
	case err != nil:
		return acquisition.Grant{}, err
	case r.Status == lua.Granted && !c.TrustExpired(answer.Sent):
		g = acquisition.Grant{Fence: r.Fence, Sent: answer.Sent}
	default:
		g, err = w.wait(ctx, answer, o)
	}
	kept = err == nil
	g.ID, g.InFlight = id, answer.InFlight
	return g, err
}
