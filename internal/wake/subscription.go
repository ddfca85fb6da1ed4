package wake

import (
	"context"
	"time"
)

// Subscription is one waiter's interest in a channel. It is for one waiter at a
// time; several waiters of a channel take one each and share one SUBSCRIBE. Its
// methods may be called concurrently.
type Subscription struct {
	hub    *Hub
	wakes  chan struct{}        // capacity 1: wakes merge
	hear   func(payload string) // gets what messages say; nil for those that say nothing
	missed func()               // see Hub.Listen; nil where hear is

	// Guarded by hub.mu.
	channel *channel // nil once closed
	index   int      // in channel.subs
}

// C carries the wakes: look again. Any number of them merge into one. Besides
// messages, a wake tells that the channel has been subscribed, perhaps anew, or
// that the connection was lost, or that the hub was closed. C is never closed.
func (s *Subscription) C() <-chan struct{} { return s.wakes }

// Ready blocks until the server has confirmed the channel, or until that is known
// not to happen for now (refused, no connection, hub or subscription closed), and
// for no longer than Config.Ping. It returns nil in all these cases, and takes the
// wakes that came before, because the caller is going to look anyway; [Live] tells
// which case it is. It returns ctx's error when ctx ends first.
//
// [Live]: Subscription.Live
func (s *Subscription) Ready(ctx context.Context) error {
	return s.ReadyUnless(ctx, nil)
}

// ReadyUnless is Ready, but returns also when the caller learns something better
// from news.
func (s *Subscription) ReadyUnless(ctx context.Context, news <-chan struct{}) error {
	settled := s.settled()
	if settled != nil {
		// No news within Ping means that the connection is in doubt; whoever waits
		// for a lock should poll rather than share in the doubt.
		patience := time.NewTimer(s.hub.cfg.Ping)
		defer patience.Stop()
		select {
		case <-settled:
		case <-news:
		case <-patience.C:
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

// settled is closed when the channel's fate is known; nil says it is already.
func (s *Subscription) settled() <-chan struct{} {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.channel == nil || s.hub.reg.isSettled(s.channel) {
		return nil
	}
	return s.channel.awaitSettled()
}

// Live reports whether the server has confirmed the channel on the connection we
// have, as far as we know. Who waits for a channel that is not live should poll at
// a shorter interval.
func (s *Subscription) Live() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.channel != nil && s.channel.state == live
}

// Close gives up the interest. It never blocks and does no I/O: the last one of a
// channel leaves it to the hub to unsubscribe after Config.Linger. Closing again
// is fine, also after the hub.
func (s *Subscription) Close() {
	s.hub.update(func(r *registry, now time.Time) bool {
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
