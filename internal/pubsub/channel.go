package pubsub

import "time"

// state is what the hub knows of a channel. The package doc shows the transitions.
type state int

const (
	unsent        state = iota // the server has not been asked on this connection
	queued                     // its batch was refused; a smaller one will be tried
	subscribing                // its SUBSCRIBE is in flight
	subscribed                 // confirmed
	denied                     // refused by itself
	unsubscribing              // its UNSUBSCRIBE is in flight
)

// channel is one pub/sub channel, with its waiters. Guarded by Hub.mu.
type channel struct {
	name        string
	state       state
	subs        map[*Subscription]struct{}
	unusedSince time.Time // when the last subscription left

	refused      bool // by itself, and not confirmed since
	gapOnConfirm bool // the next confirmation is a gap: waiters have asked since they subscribed, without or after an earlier one

	// settled is made when a call of Ready has to wait, and closed when it can return. Most
	// channels never need it.
	settled chan struct{}
}

func (c *channel) wake() {
	for s := range c.subs {
		s.wake()
	}
}

// listeners returns the subscriptions that want the text of messages.
func (c *channel) listeners() (all []*Subscription) {
	for s := range c.subs {
		if s.onMessage != nil {
			all = append(all, s)
		}
	}
	return all
}

// wakeAndSettle wakes all waiters, and ends their calls of Ready. It wakes them first, so that
// Ready takes the wake-up: a caller of Ready asks Redis anyway.
func (c *channel) wakeAndSettle() {
	c.wake()
	c.settle()
}

func (c *channel) awaitSettled() <-chan struct{} {
	if c.settled == nil {
		c.settled = make(chan struct{})
	}
	return c.settled
}

func (c *channel) settle() {
	if c.settled != nil {
		close(c.settled)
		c.settled = nil
	}
}
