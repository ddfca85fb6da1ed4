package reentrant

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
)

// poller decides when the one goroutine of a client that asks Redis looks again.
//
// The order is: subscribe, wait for the confirmation, ask again, and only then sleep. Otherwise a
// release between the attempt and the subscription would go unnoticed. Every wake-up is a hint: it
// may be lost, late, doubled or forged.
type poller struct {
	request     *request
	warning     *mutex.SelfDeadlockWarning
	granted     <-chan struct{} // its own chain has got the lock
	unsubscribe func()
	wakes       *wake.Subscription // nil until the first refusal
	woken       bool               // a wake-up ended the last sleep
	lastHolder  string             // the holder at the last refusal
	throttle    wake.Throttle      // wake-ups in a row after which the same holder still had the lock
}

func (p *poller) stop() {
	if p.granted != nil {
		p.unsubscribe()
	}
}

// yield waits before the first attempt while other clients go first.
func (p *poller) yield(ctx context.Context) error {
	d := p.request.queue.yieldFor()
	if d <= 0 {
		return nil
	}
	return p.sleep(ctx, d, nil, lua.AcquireReply{})
}

// wait returns when it is time to ask again, after a refusal. The error is that of a Lock that
// gives up.
func (p *poller) wait(ctx context.Context, refused lua.AcquireReply) error {
	if p.granted == nil {
		p.granted, p.unsubscribe = p.request.State.NotifyOnGrant(p.request.Owner)
	}
	if p.request.State.HeldBy(p.request.Owner) != nil {
		return mutex.ErrOwnerHolds
	}
	if refused.Holder != "" && !strings.HasPrefix(refused.Holder, p.request.Session.ID) {
		p.request.queue.noteOtherClient()
	}
	if p.wakes == nil {
		p.wakes = p.request.queue.subscription(p.request.Session.Wakes, p.request.Keys.Channel)
		p.lastHolder = refused.Holder
		return p.awaitSubscribed(ctx, refused)
	}
	if gap := p.throttlePause(refused.Holder); gap > 0 {
		if err := p.sleep(ctx, gap, nil, refused); err != nil {
			return err
		}
	}
	return p.sleep(ctx, p.sleepTime(refused.Remaining), p.wakes.C(), refused)
}

// awaitSubscribed waits until the subscription is in place, or is known not to be for now. In the
// second case the waiter has to poll.
func (p *poller) awaitSubscribed(ctx context.Context, refused lua.AcquireReply) error {
	end := time.Now().Add(p.sleepTime(refused.Remaining))
	bounded, cancel := session.WithDeadlineReason(ctx, end, "it is time to ask")
	defer cancel()
	_ = p.wakes.Ready(bounded)
	if ctx.Err() != nil || p.request.Session.IsClosing() {
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
		p.lastHolder, p.throttle = holder, wake.Throttle{}
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
				return mutex.ErrOwnerHolds
			}
		case <-p.warning.C:
			p.warning.Check()
		case <-ctx.Done():
			return p.request.waitErrorAfter(ctx, ctx.Err(), refused)
		case <-p.request.Session.Closing():
			return p.request.waitErrorAfter(ctx, ctx.Err(), refused)
		}
	}
}
