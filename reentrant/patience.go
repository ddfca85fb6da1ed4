package reentrant

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
)

// patience is the waiting of the one goroutine of a client that asks Redis: when
// to look again.
//
// The order is: subscribe, wait for the confirmation, ask again, and only then
// sleep; else a release between the question and the subscription would go
// unheard. Every wake is a hint: it may be lost, late, doubled or forged.
type patience struct {
	want    *want
	suspect *mutex.Suspicion
	look    <-chan struct{} // its own chain has got the lock
	unlook  func()
	wakes   *wake.Subscription // nil until the first refusal
	woken   bool               // the last sleep was ended by a wake
	holder  string             // who was named at the last refusal
	flood   wake.Flood         // wakes in a row after which the same holder still had the lock
}

func (p *patience) end() {
	if p.look != nil {
		p.unlook()
	}
}

// yield waits before the first question while other clients go first.
func (p *patience) yield(ctx context.Context) error {
	d := p.want.l.yieldFor()
	if d <= 0 {
		return nil
	}
	return p.sleep(ctx, d, nil, lua.AcquireReply{})
}

// wait returns when it is time to ask again, after a refusal. The error is that
// of a Lock that gives up.
func (p *patience) wait(ctx context.Context, refused lua.AcquireReply) error {
	if p.look == nil {
		p.look, p.unlook = p.want.Record.Watch(p.want.Owner)
	}
	if p.want.Record.HeldBy(p.want.Owner) != nil {
		return mutex.ErrOwnChain
	}
	if refused.Holder != "" && !strings.HasPrefix(refused.Holder, p.want.Session.ID) {
		p.want.l.sawOther()
	}
	if p.wakes == nil {
		p.wakes = p.want.l.subscription(p.want.Session.Wakes, p.want.Keys.Channel)
		p.holder = refused.Holder
		return p.confirmed(ctx, refused)
	}
	if gap := p.gap(refused.Holder); gap > 0 {
		if err := p.sleep(ctx, gap, nil, refused); err != nil {
			return err
		}
	}
	return p.sleep(ctx, p.until(refused.Remaining), p.wakes.C(), refused)
}

// confirmed waits until the subscription is in place, or is known not to be for
// the time being; then polling has to do.
func (p *patience) confirmed(ctx context.Context, refused lua.AcquireReply) error {
	bounded, cancel := context.WithTimeout(ctx, p.until(refused.Remaining))
	defer cancel()
	_ = p.wakes.Ready(bounded)
	if ctx.Err() != nil || p.want.Session.IsClosing() {
		return p.want.gaveUp(ctx, ctx.Err(), refused)
	}
	return nil
}

// until is how long to sleep at most: to the end of the holder's lease, for
// nothing may be heard of that, and never longer than the poll bound, for what
// should be heard may be lost. Chance keeps clients from asking all together.
func (p *patience) until(remaining time.Duration) time.Duration {
	poll := p.want.Settings.Poll
	d := poll - rand.N(poll/5+1)
	if remaining >= 0 {
		d = min(d, remaining+time.Millisecond)
	}
	return max(d, time.Millisecond)
}

// gap is a pause before wakes count again, when they keep coming while the same
// holder keeps the lock: somebody floods the channel.
func (p *patience) gap(holder string) time.Duration {
	if holder != p.holder || !p.woken {
		p.holder, p.flood = holder, wake.Flood{}
		return 0
	}
	return p.flood.Pause()
}

// sleep waits for a wake, or that long.
func (p *patience) sleep(ctx context.Context, d time.Duration, wakes <-chan struct{}, refused lua.AcquireReply) error {
	p.suspect.Begin()
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
		case <-p.look:
			if p.want.Record.HeldBy(p.want.Owner) != nil {
				return mutex.ErrOwnChain
			}
		case <-p.suspect.C:
			p.suspect.Check()
		case <-ctx.Done():
			return p.want.gaveUp(ctx, ctx.Err(), refused)
		case <-p.want.Session.Closing():
			return p.want.gaveUp(ctx, ctx.Err(), refused)
		}
	}
}
