package reentrant

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// poller decides when a client asks Redis for the lock again. Only one goroutine of a client asks.
//
// The order is: subscribe, wait for the confirmation, ask again, and only then sleep. Otherwise a
// release between the attempt and the subscription would go unnoticed. Every wake-up is a hint: it
// may be lost, late, duplicated or forged.
type poller struct {
	request     *request
	warning     *mutex.SelfDeadlockWarning
	granted     <-chan struct{} // its own chain has got the lock
	unsubscribe func()
	wakes       *pubsub.Subscription // nil until the first refusal
	woken       bool                 // a wake-up ended the last sleep
	lastHolder  string               // the holder at the last refusal
	throttle    pubsub.Throttle      // wake-ups in a row after which the same holder still had the lock
}

func (p *poller) stop() {
	if p.unsubscribe != nil {
		p.unsubscribe()
	}
}

// begin yields to other clients before the first attempt, if this client has just released the
// lock. It returns when the yield is over, or when all clients that have waited longer have had the
// lock. The yield ends within the poll bound, whatever this client releases meanwhile, and leaves
// half of the caller's time for attempts, because nobody may have the lock.
func (p *poller) begin(ctx context.Context) error {
	yield := min(p.request.queue.yieldFor(), p.request.Settings.PollInterval)
	if deadline, ok := ctx.Deadline(); ok {
		yield = min(yield, time.Until(deadline)/2)
	}
	if yield <= 0 {
		return nil
	}
	end := time.Now().Add(yield)
	messages := p.request.queue.messages()
	for d := yield; d > 0; d = min(p.request.queue.yieldFor(), time.Until(end)) {
		if err := p.sleep(ctx, d, messages, lua.AcquireReply{}); err != nil {
			return p.unaskedError(ctx, err)
		}
		if !p.woken {
			return nil
		}
		if left, own := p.request.queue.noteWake(); left == 0 && !own {
			return nil
		}
	}
	return nil
}

// unaskedError returns the error of a wait that ended before Redis was asked. If nobody is known to
// have the lock, and the program ended the wait, the error contains only the reason.
func (p *poller) unaskedError(ctx context.Context, err error) error {
	var refused *lockerr.NotAcquiredError
	if errors.As(err, &refused) && refused.Holder == "" && !session.EndedByOwnLimit(ctx) {
		return &lockerr.OpError{Op: "lock", Name: p.request.Name, Err: session.CauseFor(ctx, p.request.Name)}
	}
	return err
}

// wait returns when it is time to ask again, after a refusal. The error is that of a Lock that
// gives up.
func (p *poller) wait(ctx context.Context, refused lua.AcquireReply) error {
	if p.unsubscribe == nil {
		p.granted, p.unsubscribe = p.request.State.NotifyOnGrant(p.request.Owner)
	}
	if p.request.State.HeldBy(p.request.Owner) != nil {
		return mutex.ErrBeginAnew
	}
	client := refused.Holder[:max(strings.LastIndexByte(refused.Holder, ':'), 0)]
	if client != "" && client != p.request.Session().ID {
		p.request.queue.noteRefused(client)
	}
	if p.wakes == nil {
		p.wakes = p.request.queue.subscription(p.request.Session().Hub, p.request.Keys().Channel)
		p.lastHolder = refused.Holder
		return p.awaitSubscribed(ctx, refused)
	}
	d, cause := p.sleepTime(refused.Remaining), event.Poll
	if d == refused.Remaining+time.Millisecond {
		cause = event.LeaseEnd
	}
	end := time.Now().Add(d)
	if gap := p.throttlePause(refused.Holder); gap > 0 {
		if err := p.sleep(ctx, min(gap, time.Until(end)), nil, refused); err != nil {
			return err
		}
	}
	for d = time.Until(end); ; d = min(d, time.Until(end)) {
		if err := p.sleep(ctx, d, p.wakes.C(), refused); err != nil {
			return err
		}
		if !p.woken {
			break
		}
		cause = event.Message
		if d, _ = p.request.queue.noteWake(); d == 0 {
			break
		}
	}
	p.request.NoteWake(cause)
	return nil
}

// awaitSubscribed waits until the subscription is in place, or is known not to be for now. In the
// second case the waiter has to poll.
func (p *poller) awaitSubscribed(ctx context.Context, refused lua.AcquireReply) error {
	end := time.Now().Add(p.sleepTime(refused.Remaining))
	bounded, cancel := session.WithDeadlineReason(ctx, end, "it is time to ask")
	defer cancel()
	_ = p.wakes.Ready(bounded)
	if ctx.Err() != nil || p.request.Session().IsClosing() {
		return p.request.waitErrorAfter(ctx, ctx.Err(), refused)
	}
	return nil
}

// sleepTime returns how long to sleep at most. That is to the end of the holder's lease, because no
// message announces it. It is never longer than the poll bound, because messages may be lost.
// Chance keeps clients from asking all together.
func (p *poller) sleepTime(remaining time.Duration) time.Duration {
	poll := p.request.Settings.PollInterval
	d := poll - rand.N(poll/5+1)
	if remaining >= 0 {
		d = min(d, remaining+time.Millisecond)
	}
	return d
}

// throttlePause returns a pause before wake-ups count again, if they keep coming while the same
// holder keeps the lock: somebody floods the channel.
func (p *poller) throttlePause(holder string) time.Duration {
	if holder != p.lastHolder || !p.woken {
		p.lastHolder, p.throttle = holder, pubsub.Throttle{}
		return 0
	}
	return p.throttle.Pause()
}

// sleep waits for a wake-up, or for d.
func (p *poller) sleep(ctx context.Context, d time.Duration, wakes <-chan struct{}, refused lua.AcquireReply) error {
	p.warning.Start()
	timer := time.NewTimer(d)
	defer timer.Stop()
	p.woken = false
	for {
		select {
		case <-wakes:
			p.woken = true
			return nil
		case <-timer.C:
			return nil
		case <-p.granted:
			if p.request.State.HeldBy(p.request.Owner) != nil {
				return mutex.ErrBeginAnew
			}
		case <-p.warning.C:
			p.warning.Check()
		case <-ctx.Done():
			return p.request.waitErrorAfter(ctx, ctx.Err(), refused)
		case <-p.request.Session().Closing():
			return p.request.waitErrorAfter(ctx, ctx.Err(), refused)
		}
	}
}
