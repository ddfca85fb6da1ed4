package pubsub

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// onFrame is called for every frame, because any frame proves the connection.
func (r *hubState) onFrame(now time.Time) {
	r.lastFrame = now
	if r.firstFrame.IsZero() {
		r.firstFrame = now
	}
	if r.down {
		r.down = false
		r.log.recovered(unreachable)
	}
}

// onMessage wakes the waiters of the channel. It returns those that want the text of the message.
func (r *hubState) onMessage(m *redis.Message, now time.Time) (listeners []*Subscription, look bool) {
	c := r.find(m.Channel)
	switch {
	case c == nil:
		return nil, false
	case c == r.echo.channel:
		return nil, r.onEcho(m.Payload, now)
	}
	c.wake()
	return c.listeners(), false
}

func (r *hubState) onPong(nonce string, now time.Time) (look bool, err error) {
	cmd := r.inFlight
	if cmd == nil || cmd.verb != ping || cmd.nonce != nonce {
		return false, nil
	}
	r.inFlight = nil
	return true, r.onPinged(cmd, now)
}

// onConfirmation handles a confirmation. It returns the listeners that may have missed messages
// before.
func (r *hubState) onConfirmation(kind, name string, now time.Time) (missed []*Subscription, look bool) {
	c := r.find(name)
	switch {
	case c == nil:
	case kind == "subscribe", kind == "ssubscribe":
		if look = r.onSubscribed(c, now); c.gapOnConfirm {
			missed = c.listeners()
		}
		c.gapOnConfirm = true
	case kind == "unsubscribe", kind == "sunsubscribe":
		look = r.onUnsubscribed(c, now)
	}
	return missed, look
}

// onSubscribed makes c live and wakes its waiters, even if the hub asked for no confirmation. Such
// a confirmation means that go-redis has changed the connection, and lost the messages in between.
func (r *hubState) onSubscribed(c *channel, now time.Time) (look bool) {
	was := c.state
	if was == unsubscribing {
		return false
	}
	delete(r.unsent, c)
	delete(r.denied, c)
	c.state = subscribed
	if c != r.echo.channel {
		r.startEchoes(now)
	}
	c.wakeAndSettle()
	if c.refused {
		c.refused = false
		r.log.recovered(refused, slog.String("channel", c.name))
		r.recheck(len(r.denied)) // the others may be allowed now too
		look = true
	}
	if was == subscribing {
		look = r.countDown() || look
	}
	return look
}

// onUnsubscribed handles the end of a subscription, whether the hub asked for it or not.
func (r *hubState) onUnsubscribed(c *channel, now time.Time) (look bool) {
	was := c.state
	if was != unsubscribing && was != subscribed {
		return false
	}
	switch {
	case c == r.echo.channel:
		c.state = unsent
	case len(c.subs) == 0:
		r.forget(c, now)
	default:
		r.markUnsent(c)
		c.wake()
		look = true
	}
	if was == unsubscribing {
		look = r.countDown() || look
	}
	return look
}

// countDown counts one confirmation of the command in flight.
func (r *hubState) countDown() (over bool) {
	r.inFlight.left--
	if r.inFlight.left > 0 {
		return false
	}
	r.inFlight = nil
	return true
}

// onErrorReply handles an error reply. It belongs to the command in flight, because there is only
// one. If there is none, go-redis has subscribed by itself. Then nobody knows what is subscribed,
// and the connection has to end.
func (r *hubState) onErrorReply(reply redis.Error, now time.Time) error {
	cmd := r.inFlight
	if cmd == nil {
		return fmt.Errorf("%w: %w", errUnasked, reply)
	}
	r.inFlight = nil
	switch cmd.verb {
	case subscribe:
		r.onSubscribeRefused(cmd, reply, now)
	case unsubscribe:
		r.onUnsubscribeRefused(cmd, reply, now)
	case ping: // the refusal proves as much as an answer
		return r.onPinged(cmd, now)
	}
	return nil
}

// onSubscribeRefused finds out which channels a refusal is about. If the user may not use one
// channel, Redis refuses the whole SUBSCRIBE, and does not name the channel. So the hub tries
// halves, down to single channels. One denied channel of 1,000 then costs about twenty round trips.
// One by one, it would cost 1,000. If the channels may not be in one command, the hub sends each in a command of
// its own from then on. An error of another kind is not about names, and refuses all.
func (r *hubState) onSubscribeRefused(cmd *command, reply redis.Error, now time.Time) {
	if cmd.channels[0] == r.echo.channel { // waiters do not depend on it, so nobody has to know
		r.echo.channel.state = denied
		r.echo.putOff(now.Add(r.cfg.Recheck))
		return
	}
	rest := slices.DeleteFunc(cmd.channels, func(c *channel) bool { return c.state != subscribing })
	if isCrossSlot(reply) && len(rest) > 1 {
		r.oneByOne = true
		for _, c := range rest {
			r.markUnsent(c)
		}
		return
	}
	if redis.IsPermissionError(reply) && len(rest) > 1 {
		half := len(rest) / 2
		r.enqueue(rest[:half:half])
		r.enqueue(rest[half:])
		return
	}
	for _, c := range rest {
		r.markDenied(c, reply, now)
	}
}

// isCrossSlot reports whether a server refuses channels of several slots in one command.
func isCrossSlot(reply redis.Error) bool { return redis.HasErrorPrefix(reply, "CROSSSLOT") }

// onUnsubscribeRefused has the hub send the channels one by one if they may not be in one command. Otherwise
// it forgets channels although the server still sends their messages. Nobody gets these messages, and the
// end of the connection ends them. A new connection would cost all other waiters their messages meanwhile.
func (r *hubState) onUnsubscribeRefused(cmd *command, reply redis.Error, now time.Time) {
	if isCrossSlot(reply) && len(cmd.channels) > 1 {
		r.oneByOne = true
		for _, c := range cmd.channels {
			if c.state == unsubscribing {
				c.state = subscribed
				r.markUnused(c, now)
			}
		}
		return
	}
	for _, c := range cmd.channels {
		switch {
		case c.state != unsubscribing:
		case c == r.echo.channel:
			c.state = unsent
		case len(c.subs) == 0:
			r.forget(c, now)
		default:
			r.markUnsent(c)
		}
	}
	r.log.trouble(refused, slog.Any("error", reply))
}

func (r *hubState) enqueue(part []*channel) {
	for _, c := range part {
		c.state = queued
	}
	r.refusals = append(r.refusals, part)
}

func (r *hubState) markDenied(c *channel, reply redis.Error, now time.Time) {
	c.state, c.refused, c.gapOnConfirm = denied, true, true
	r.denied[c] = struct{}{}
	c.settle()
	if at := now.Add(r.recheckPause(reply)); r.recheckAt.IsZero() || at.Before(r.recheckAt) {
		r.recheckAt = at
	}
	r.log.trouble(refused, slog.String("channel", c.name), slog.Any("error", reply))
}

// recheckPause returns when the hub tries again after a refusal. A node refuses a sharded channel also while
// the cluster is in trouble or a slot moves, and for two seconds after its start. That ends soon.
func (r *hubState) recheckPause(reply redis.Error) time.Duration {
	passing := slices.ContainsFunc([]string{"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "MASTERDOWN", "LOADING"}, func(code string) bool {
		return redis.HasErrorPrefix(reply, code)
	})
	if r.cfg.sharded && passing {
		return min(shardPause, r.cfg.Recheck)
	}
	return r.cfg.Recheck
}
