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

// Errors with which a wait can end without a grant.
var (
	errPlaceLost   = errors.New("the place in the queue is gone")
	ErrRemoved     = errors.New("removed from the queue")
	ErrInterrupted = errors.New("the wait was interrupted")
)

// LimitError ends a wait for more units than the limit, after the limit was lowered.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string { return fmt.Sprintf("the limit is %d", e.Limit) }

// WaitOptions says how to wait.
type WaitOptions struct {
	// OnChange is called with the place of the waiter whenever that has changed. again says that
	// the waiter had lost its place and queues again.
	OnChange func(place lua.QueueState, again bool)
	// Ends is called when Interrupt fires, and may end the wait with ErrInterrupted. Ends and Place
	// may block, and the waiter keeps its place meanwhile. A grant that comes meanwhile has to
	// wait for them. If they take too long, the grant ends with the heartbeat.
	Interrupt <-chan struct{}
	EndsWait  func() bool
	// Check is called when Suspect fires.
	WarnTimer <-chan time.Time
	Warn      func()

	requeued bool
}

// wait waits after a join that was answered "queued", or granted too late to be trusted. It ends
// when the waiter is granted or has no place any more, or when ctx ends. Its errors are
// errPlaceLost, and those of Contend.
func (w *waiter[B]) wait(ctx context.Context, joined session.Answer[lua.JoinReply], o WaitOptions) (Grant, error) {
	w.ticket = joined.Value.Ticket
	w.apply(lua.HeartbeatReply{Status: joined.Value.Status, QueueState: joined.Value.QueueState}, joined.Sent)
	w.startHeartbeat(joined.Sent)
	ask, err := w.subscribe(ctx)
	var shown lua.QueueState
	for err == nil {
		if ask {
			g, granted, err := w.poll(ctx)
			if err != nil || granted {
				return g, err
			}
		}
		now := w.snapshot()
		if now.status == lua.Queued && hasChanged(now.queueState, shown) {
			shown = now.queueState
			o.OnChange(shown, o.requeued)
			o.requeued = false
			if w.desk.session.IsClosing() {
				return Grant{}, context.Canceled
			}
		}
		switch {
		case now.status == lua.Gone:
			return Grant{}, errPlaceLost
		case now.status == lua.Removed:
			return Grant{}, ErrRemoved
		case now.status == lua.OverLimit:
			return Grant{}, &LimitError{Limit: now.queueState.Limit}
		case now.heartbeatEnded:
			ask = true
		default:
			ask, err = w.sleep(ctx, now, o)
		}
	}
	return Grant{}, err
}

// subscribe listens for messages, and waits until the subscription is confirmed, or is known not to
// come. Then heartbeats have to do. An answered heartbeat also ends the wait, because it may say
// that the waiter was granted, and a grant that nobody takes ends soon. subscribe reports whether a
// message may have been missed.
func (w *waiter[B]) subscribe(ctx context.Context) (missed bool, err error) {
	w.sub = w.desk.acquireSub()
	if w.sub == w.liveSub && w.sub.Live() {
		return false, nil
	}
	select {
	case <-w.changed: // of the join's answer
	default:
	}
	if w.snapshot().hinted {
		return true, nil
	}
	return true, w.sub.ReadyUnless(ctx, w.changed)
}

// poll asks Redis about the waiter. Only ask takes a grant: Redis then keeps the grant for a whole
// lease from the sending on. If the waiter is still queued, its heartbeat begins anew.
func (w *waiter[B]) poll(ctx context.Context) (g Grant, granted bool, err error) {
	hinted := w.takeHint()
	answer, err := w.request.Claim(ctx, w.id)
	switch {
	case err != nil:
		return Grant{}, false, err
	case answer.Value.Status == lua.Granted && !w.request.TrustExpired(answer.Sent):
		return Grant{Fence: answer.Value.Fence, Sent: answer.Sent}, true, nil
	}
	w.apply(answer.Value, answer.Sent)
	if answer.Value.Status == lua.Queued {
		w.startHeartbeat(answer.Sent)
		if hinted {
			w.onFalseHint()
		}
	}
	return Grant{}, false, nil
}

// onFalseHint is called after a hint that proved false. If many come, hints do not count for a
// while. The first one after a quiet time counts immediately.
func (w *waiter[B]) onFalseHint() {
	const quiet = time.Second
	now := time.Now()
	if now.Sub(w.hintsFrom) > quiet {
		w.throttle = wake.Throttle{}
	}
	w.hintsFrom = now.Add(w.throttle.Pause())
}

// watchesLeaseEnd reports whether this waiter has to ask when the holder's lease ends, or the first
// lease of several: no message announces that end. One waiter of each client does so, and only if
// the end is near. Otherwise its next heartbeat comes before the end. The waiter need not be the
// first of the whole queue: behind crashed waiters, nobody knows which waiter is the first.
func (w *waiter[B]) watchesLeaseEnd(p lua.QueueState) bool {
	return p.Remaining >= 0 && p.Remaining <= w.spec.Heartbeat && w.desk.isFirst(w)
}

// pollAt returns when the waiter asks unless news comes: after a hint, or at the end of the
// holder's lease.
func (w *waiter[B]) pollAt(now snapshot) (at time.Time, will bool) {
	if w.watchesLeaseEnd(now.queueState) {
		at, will = now.updatedAt.Add(now.queueState.Remaining+time.Millisecond), true
	}
	if now.hinted && (!will || w.hintsFrom.Before(at)) {
		at, will = w.hintsFrom, true
	}
	return at, will
}

// sleep waits for news, or until it is time to ask.
func (w *waiter[B]) sleep(ctx context.Context, now snapshot, o WaitOptions) (ask bool, err error) {
	var due <-chan time.Time
	if at, will := w.pollAt(now); will {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-w.changed:
		return false, nil
	case <-due:
		return true, nil
	case <-o.WarnTimer:
		o.Warn()
		return false, nil
	case <-o.Interrupt:
		if o.EndsWait() {
			return false, ErrInterrupted
		}
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.desk.session.Closing():
		return false, context.Canceled
	}
}

// hasChanged reports whether the change from b to a needs a notice.
func hasChanged(a, b lua.QueueState) bool {
	return a.Position != b.Position || a.Length != b.Length || a.Holder != b.Holder
}
