package wake

import "time"

// state is what is known of a channel; see the package doc for the ways between.
type state int

const (
	wanted  state = iota // the server has not been asked on this connection
	queued               // its batch was refused; a smaller one will be tried
	asked                // its SUBSCRIBE is under way
	live                 // confirmed
	denied               // refused by itself
	leaving              // its UNSUBSCRIBE is under way
)

// channel is one pub/sub channel and who waits for it. Guarded by Hub.mu.
type channel struct {
	name   string
	state  state
	subs   []*Subscription
	unused time.Time // when the last subscription left

	refused bool // by itself, and not confirmed since
	known   bool // confirmed before, perhaps on another connection

	// settled is made when somebody waits for the fate of the channel and closed
	// when it is known. Most channels never need one.
	settled chan struct{}
}

func (c *channel) join(s *Subscription) {
	s.channel, s.index = c, len(c.subs)
	c.subs = append(c.subs, s)
}

func (c *channel) part(s *Subscription) {
	last := len(c.subs) - 1
	c.subs[s.index] = c.subs[last]
	c.subs[s.index].index = s.index
	c.subs[last] = nil
	c.subs = c.subs[:last]
	s.channel = nil
}

func (c *channel) wake() {
	for _, s := range c.subs {
		s.wake()
	}
}

// listeners are those that want to know what messages say.
func (c *channel) listeners() (all []*Subscription) {
	for _, s := range c.subs {
		if s.hear != nil {
			all = append(all, s)
		}
	}
	return all
}

// tell makes everybody look. The wake comes first, so that Ready, which the other
// ends, can take it: whoever is in Ready looks anyway.
func (c *channel) tell() {
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
