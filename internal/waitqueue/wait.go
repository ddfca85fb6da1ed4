package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/session"
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

// WaitOptions configures a wait.
type WaitOptions struct {
	// OnChange is called when the place of the waiter has changed. again says that the waiter had
	// lost its place and has joined again.
	OnChange func(id string, place lua.QueueState, again bool)
	// When Interrupt fires, the waiter calls EndsWait. If EndsWait returns true, the wait ends with
	// ErrInterrupted. EndsWait and OnChange may block, and the waiter keeps its place meanwhile. It
	// takes a grant only after they return. If that is too late, the grant ends with its first
	// lease.
	Interrupt <-chan struct{}
	EndsWait  func() bool
	// The waiter calls Warn when WarnTimer fires.
	WarnTimer <-chan time.Time
	Warn      func()

	requeued bool
}

// wait waits after a join that put the waiter into the queue, or whose grant came too late to trust
// it. It blocks until the waiter has a grant or no place any more, until ctx ends, or until the
// client closes. Its errors are errPlaceLost, and those of JoinAndWait.
func (w *waiter[B]) wait(ctx context.Context, joined session.Answer[lua.JoinReply], o WaitOptions) (acquisition.Grant, error) {
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
			o.OnChange(w.id, shown, o.requeued)
			o.requeued = false
			if w.set.session.IsClosing() {
				return acquisition.Grant{}, context.Canceled
			}
		}
		switch {
		case now.status == lua.Gone:
			return acquisition.Grant{}, errPlaceLost
		case now.status == lua.Removed:
			return acquisition.Grant{}, ErrRemoved
		case now.status == lua.OverLimit:
			return acquisition.Grant{}, &LimitError{Limit: now.queueState.Limit}
		case now.heartbeatEnded:
			ask = true
		default:
			ask, err = w.sleep(ctx, now, o)
		}
		if ask {
			w.noteWake(now)
		}
	}
	return acquisition.Grant{}, err
}

// subscribe listens for messages. It blocks until Redis confirms the subscription, or until it is
// known that the subscription does not come, so that the waiter has only heartbeats. It also
// returns when Redis answers a heartbeat, because the answer may be a grant, and a grant that no
// waiter takes over ends soon, or after a hint. The waiter then asks again when the subscription is
// confirmed. subscribe reports whether a message may have been missed.
func (w *waiter[B]) subscribe(ctx context.Context) (missed bool, err error) {
	w.slotKnown = w.set.session.AskSlotChannel()
	w.listen(w.set.channel)
	w.listen(w.set.channelOf(w))
	if w.sub == w.liveSub && w.sub.Live() {
		return false, nil
	}
	select {
	case <-w.changed: // of the join's answer
	default:
	}
	if !w.snapshot().hinted {
		err = w.sub.ReadyUnless(ctx, w.changed)
	}
	w.settled = w.sub.Settled()
	return true, err
}

// listen subscribes to a channel, unless the waiter listens to it already.
func (w *waiter[B]) listen(channel string) {
	if !slices.Contains(w.channels, channel) {
		w.channels = append(w.channels, channel)
		w.sub = w.set.acquireSub(channel)
	}
}

// listenInSlot is called when the client knows which channels it needs.
func (w *waiter[B]) listenInSlot() {
	before := w.sub
	w.listen(w.set.channelOf(w))
	if w.sub == before {
		return
	}
	if w.settled = w.sub.Settled(); w.settled == nil { // a message may have been missed until now
		w.hint()
	}
}

// poll asks Redis about the waiter, and blocks until Redis answers. Only poll takes a grant over:
// Redis then keeps the grant for at least a whole lease after the command was sent. If the waiter
// is still queued, its heartbeat timeout begins anew.
func (w *waiter[B]) poll(ctx context.Context) (g acquisition.Grant, granted bool, err error) {
	before := w.snapshot()
	hinted := w.takeHint()
	answer, err := w.request.Claim(ctx, w.id)
	switch {
	case err != nil:
		return acquisition.Grant{}, false, err
	case answer.Value.Status == lua.Granted && !w.request.TrustExpired(answer.Sent):
		return acquisition.Grant{Fence: answer.Value.Fence, Sent: answer.Sent}, true, nil
	}
	w.apply(answer.Value, answer.Sent)
	if answer.Value.Status == lua.Queued {
		w.startHeartbeat(answer.Sent)
		if hinted && !(before.freed && wasFreed(before, answer.Value.QueueState)) {
			w.onFalseHint()
		}
	}
	return acquisition.Grant{}, false, nil
}

// wasFreed reports whether the lock was free since before, so that the message of it was true,
// although somebody else has the lock now. That may be the same holder with a fresh lease.
func wasFreed(before snapshot, now lua.QueueState) bool {
	const longer = 5 * time.Millisecond // more than answers differ in their time
	if now.Holder != before.queueState.Holder {
		return true
	}
	return now.Remaining >= 0 && now.Remaining-before.queueState.Remaining+time.Since(before.updatedAt) > longer
}

// onFalseHint records a hint that proved false. After many such hints, the waiter ignores hints for
// a while. After a quiet time, it reacts to the first hint immediately again.
func (w *waiter[B]) onFalseHint() {
	const quiet = time.Second
	now := time.Now()
	if now.Sub(w.hintsFrom) > quiet {
		w.throttle = pubsub.Throttle{}
	}
	w.hintsFrom = now.Add(w.throttle.Pause())
}

// isLeaseEndNear reports whether the lease of the holder may end before the next heartbeat of this
// waiter. If there are several holders, it is the lease that ends first.
func (w *waiter[B]) isLeaseEndNear(p lua.QueueState) bool {
	return p.Remaining >= 0 && p.Remaining <= w.spec.Heartbeat
}

// pollAt returns when the waiter asks if nothing else changes: after a hint, or at the end of the
// holder's lease. will is false if neither is due. No message announces the end of a lease. Only
// the first waiter of each client in a queue asks then. It may not be the first of the whole queue,
// because waiters before it may have crashed.
func (w *waiter[B]) pollAt(now snapshot) (at time.Time, will bool) {
	if w.isLeaseEndNear(now.queueState) && w.set.isFirst(w) {
		at, will = now.updatedAt.Add(now.queueState.Remaining+time.Millisecond), true
	}
	if now.hinted && (!will || w.hintsFrom.Before(at)) {
		at, will = w.hintsFrom, true
	}
	return at, will
}

// sleep blocks until the state of the waiter changes, until it is time to ask, or until the wait
// ends. ask reports that it is time to ask.
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
	case <-w.settled: // a message may have been missed until now
		w.settled = nil
		w.hint()
		return false, nil
	case <-w.slotKnown:
		w.slotKnown = nil
		w.listenInSlot()
		return false, nil
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
	case <-w.set.session.Closing():
		return false, context.Canceled
	}
}

// hasChanged reports whether the user must be notified of the change from b to a.
func hasChanged(a, b lua.QueueState) bool {
	return a.Position != b.Position || a.Length != b.Length || a.Holder != b.Holder
}
