package pubsub

import (
	"context"
	"time"
)

// Subscription is one waiter's interest in a channel. It is for one waiter at a time. Several
// waiters of a channel take one each, and share one SUBSCRIBE. Its methods may be called
// concurrently.
type Subscription struct {
	hub       *Hub
	wakes     chan struct{}        // capacity 1: wake-ups merge
	onMessage func(payload string) // gets the text of messages; nil if they have no meaning
	onGap     func()               // see Hub.Listen; nil if onMessage is nil

	channel *channel // nil once closed; guarded by hub.mu
}

// C carries the wake-ups, each of which makes the waiter ask again. Any number of them merge into
// one. Causes are a message, a confirmation of the channel (perhaps anew), the loss of the
// connection, and the end of the hub. C is never closed.
func (s *Subscription) C() <-chan struct{} { return s.wakes }

// Ready blocks until the server has confirmed the channel, or until that is known not to happen for
// now: refused, no connection, hub or subscription closed. It blocks no longer than timings.ping.
// In all these cases it returns nil, and takes earlier wake-ups, because the caller asks Redis
// anyway. [Live] says which case it is. If ctx ends first, Ready returns the error of ctx.
//
// [Live]: Subscription.Live
func (s *Subscription) Ready(ctx context.Context) error {
	return s.ReadyUnless(ctx, nil)
}

// ReadyUnless is Ready, but also returns when news arrives, because the caller then knows more.
func (s *Subscription) ReadyUnless(ctx context.Context, news <-chan struct{}) error {
	settled := s.Settled()
	if settled != nil {
		// No confirmation within ping means that the connection is in doubt. A waiter for a lock
		// should then poll.
		select {
		case <-settled:
		case <-news:
		case <-time.After(s.hub.cfg.ping):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-s.wakes:
	default:
	}
	return nil
}

// Settled returns a channel that is closed when Ready can return, or nil if it can return now.
func (s *Subscription) Settled() <-chan struct{} {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.channel == nil || s.hub.state.isSettled(s.channel) {
		return nil
	}
	return s.channel.awaitSettled()
}

// Live reports whether the server has confirmed the channel on the present connection, as far as
// the hub knows. A waiter of a channel that is not live should poll at a shorter interval.
func (s *Subscription) Live() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.channel != nil && s.channel.state == subscribed
}

// Close ends the interest. It never blocks and does no I/O. After the last subscription of a
// channel, the hub unsubscribes after timings.linger. Closing again is fine, also after the hub.
func (s *Subscription) Close() {
	s.hub.update(func(r *hubState, now time.Time) bool {
		return r.remove(s, now)
	})
}

// wake never blocks.
func (s *Subscription) wake() {
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}
