package wake

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// heard is called for every frame: any of them proves the connection.
func (r *registry) heard(now time.Time) {
	r.lastHeard = now
	if r.firstHeard.IsZero() {
		r.firstHeard = now
	}
	if r.down {
		r.down = false
		r.log.recovered(unreachable)
	}
}

// published wakes who waits for the channel, and returns who wants to know what
// the message says.
func (r *registry) published(name string) (listeners []*Subscription) {
	c := r.channels[name]
	if c == nil {
		return nil
	}
	c.wake()
	return c.listeners()
}

func (r *registry) ponged(nonce string) (look bool) {
	if r.asked == nil || r.asked.verb != ping || r.asked.nonce != nonce {
		return false
	}
	r.asked = nil
	return true
}

// answered takes in a confirmation, and returns who may have missed messages before it.
func (r *registry) answered(kind, name string, now time.Time) (missed []*Subscription, look bool) {
	c := r.channels[name]
	switch {
	case c == nil:
	case kind == "subscribe":
		if look = r.confirmed(c); c.known {
			missed = c.listeners()
		}
		c.known = true
	case kind == "unsubscribe":
		look = r.left(c, now)
	}
	return missed, look
}

// confirmed makes c live and wakes who waits, whatever we thought of it: a
// confirmation nobody asked for means that go-redis has changed the connection,
// and what was published in between is lost.
func (r *registry) confirmed(c *channel) (look bool) {
	was := c.state
	if was == leaving {
		return false
	}
	delete(r.wanted, c)
	delete(r.denied, c)
	c.state = live
	c.tell()
	if c.refused {
		c.refused = false
		r.log.recovered(refused, slog.String("channel", c.name))
		r.recheck(len(r.denied)) // what has changed for one may have changed for all
		look = true
	}
	if was == asked {
		look = r.countDown() || look
	}
	return look
}

// left takes in the end of a subscription, asked for or not.
func (r *registry) left(c *channel, now time.Time) (look bool) {
	was := c.state
	if was != leaving && was != live {
		return false
	}
	if len(c.subs) == 0 {
		r.forget(c, now)
	} else {
		r.want(c)
		c.wake()
		look = true
	}
	if was == leaving {
		look = r.countDown() || look
	}
	return look
}

// countDown counts one confirmation of the command under way.
func (r *registry) countDown() (over bool) {
	r.asked.left--
	if r.asked.left > 0 {
		return false
	}
	r.asked = nil
	return true
}

// refused takes in an error reply. It belongs to the command under way, for there
// is only one. An error that answers nothing is go-redis subscribing behind our
// back; then nobody knows what is subscribed, and the connection has to go.
func (r *registry) refused(reply redis.Error, now time.Time) error {
	cmd := r.asked
	if cmd == nil {
		return fmt.Errorf("%w: %w", errUnasked, reply)
	}
	r.asked = nil
	switch cmd.verb {
	case subscribe:
		r.refusedSubscribe(cmd, reply, now)
	case unsubscribe:
		r.refusedUnsubscribe(cmd, reply, now)
	}
	return nil
}

// refusedSubscribe finds out whom a refusal is meant for. Redis refuses a whole
// SUBSCRIBE for one channel that the user may not hear, and does not say which.
// So halves are tried, down to single channels: one by one, 1 denied of 1,000
// would cost 1,000 round trips, and this way it is about twenty. An error of
// another kind is not about names and refuses all of them.
func (r *registry) refusedSubscribe(cmd *command, reply redis.Error, now time.Time) {
	rest := slices.DeleteFunc(cmd.channels, func(c *channel) bool { return c.state != asked })
	if redis.IsPermissionError(reply) && len(rest) > 1 {
		half := len(rest) / 2
		r.enqueue(rest[:half:half])
		r.enqueue(rest[half:])
		return
	}
	for _, c := range rest {
		r.deny(c, reply, now)
	}
}

// refusedUnsubscribe lets go of what the server does not let go of. Messages for
// it find nobody, and the end of the connection ends it; a new connection would
// cost all other waiters their messages meanwhile.
func (r *registry) refusedUnsubscribe(cmd *command, reply redis.Error, now time.Time) {
	for _, c := range cmd.channels {
		switch {
		case c.state != leaving:
		case len(c.subs) == 0:
			r.forget(c, now)
		default:
			r.want(c)
		}
	}
	r.log.trouble(refused, slog.Any("error", reply))
}

func (r *registry) enqueue(part []*channel) {
	for _, c := range part {
		c.state = queued
	}
	r.refusals = append(r.refusals, part)
}

func (r *registry) deny(c *channel, reply redis.Error, now time.Time) {
	c.state, c.refused = denied, true
	r.denied[c] = struct{}{}
	c.settle()
	if r.recheckAt.IsZero() {
		r.recheckAt = now.Add(r.cfg.Recheck)
	}
	r.log.trouble(refused, slog.String("channel", c.name), slog.Any("error", reply))
}
