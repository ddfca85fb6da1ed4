package wake

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// heard is called for every frame, because any frame proves the connection.
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

// published wakes the waiters of the channel. It returns those that want the text of the message.
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

// answered handles a confirmation. It returns the listeners that may have missed messages before.
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

// confirmed makes c live and wakes its waiters, even if the hub asked for no confirmation. Such a
// confirmation means that go-redis has changed the connection, and lost the messages in between.
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
		r.recheck(len(r.denied)) // the others may be allowed now too
		look = true
	}
	if was == asked {
		look = r.countDown() || look
	}
	return look
}

// left handles the end of a subscription, whether the hub asked for it or not.
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

// countDown counts one confirmation of the command in flight.
func (r *registry) countDown() (over bool) {
	r.asked.left--
	if r.asked.left > 0 {
		return false
	}
	r.asked = nil
	return true
}

// refused handles an error reply. It belongs to the command in flight, because there is only one.
// If there is none, go-redis has subscribed by itself. Then nobody knows what is subscribed, and
// the connection has to end.
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

// refusedSubscribe finds out which channels a refusal is about. If the user may not use one
// channel, Redis refuses the whole SUBSCRIBE, and does not name the channel. So the hub tries
// halves, down to single channels. One denied channel of 1,000 then costs about twenty round trips.
// One by one, it would cost 1,000. An error of another kind is not about names, and refuses all.
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

// refusedUnsubscribe forgets channels although the server still sends their messages. Nobody gets
// these messages, and the end of the connection ends them. A new connection would cost all other
// waiters their messages meanwhile.
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
