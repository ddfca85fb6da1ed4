package pubsub

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// onFrame is called for every frame, because any frame proves the connection.
func (s *hubState) onFrame(now time.Time) {
	s.lastFrame = now
	if s.firstFrame.IsZero() {
		s.firstFrame = now
	}
	if s.down {
		s.down = false
		s.log.recovered(unreachable)
	}
}

// onMessage wakes the waiters of the channel. It returns those that want the text of the message.
func (s *hubState) onMessage(m *redis.Message, now time.Time) (listeners []*Subscription, look bool) {
	c := s.find(m.Channel)
	switch {
	case c == nil:
		return nil, false
	case c == s.echo.channel:
		return nil, s.onEcho(m.Payload, now)
	}
	c.wake()
	return c.listeners(), false
}

func (s *hubState) onPong(nonce string, now time.Time) error {
	cmd := s.inFlight
	if cmd == nil || cmd.verb != ping || cmd.nonce != nonce {
		return nil
	}
	s.inFlight = nil
	return s.onPinged(cmd, now)
}

// onConfirmation handles a confirmation. It returns the listeners that may have missed messages
// before.
func (s *hubState) onConfirmation(kind, name string, now time.Time) (missed []*Subscription) {
	c := s.find(name)
	switch {
	case c == nil:
	case kind == "subscribe", kind == "ssubscribe":
		s.onSubscribed(c, now)
		if c.gapOnConfirm {
			missed = c.listeners()
		}
		c.gapOnConfirm = true
	case kind == "unsubscribe", kind == "sunsubscribe":
		s.onUnsubscribed(c, now)
	}
	return missed
}

// onSubscribed makes c live and wakes its waiters, even if the hub asked for no confirmation. Such
// a confirmation means that go-redis has changed the connection, and lost the messages in between.
func (s *hubState) onSubscribed(c *channel, now time.Time) {
	was := c.state
	if was == unsubscribing {
		return
	}
	delete(s.unsent, c)
	delete(s.denied, c)
	c.state = subscribed
	if c != s.echo.channel {
		s.startEchoes(now)
	}
	c.wakeAndSettle()
	if c.refused {
		c.refused = false
		s.log.recovered(refused, slog.String("channel", c.name))
		s.recheck(len(s.denied)) // the others may be allowed now too
	}
	if was == subscribing {
		s.countDown()
	}
}

// onUnsubscribed handles the end of a subscription, whether the hub asked for it or not.
func (s *hubState) onUnsubscribed(c *channel, now time.Time) {
	was := c.state
	if was != unsubscribing && was != subscribed {
		return
	}
	switch {
	case c == s.echo.channel:
		c.state = unsent
	case len(c.subs) == 0:
		s.forget(c, now)
	default:
		s.markUnsent(c)
		c.wake()
	}
	if was == unsubscribing {
		s.countDown()
	}
}

// countDown counts one confirmation of the command in flight.
func (s *hubState) countDown() {
	s.inFlight.left--
	if s.inFlight.left == 0 {
		s.inFlight = nil
	}
}

// onErrorReply handles an error reply. It belongs to the command in flight, because there is only
// one. If there is none, go-redis has subscribed by itself. Then nobody knows what is subscribed,
// and the connection has to end.
func (s *hubState) onErrorReply(reply redis.Error, now time.Time) error {
	cmd := s.inFlight
	if cmd == nil {
		return fmt.Errorf("%w: %w", errUnasked, reply)
	}
	s.inFlight = nil
	switch cmd.verb {
	case subscribe:
		s.onSubscribeRefused(cmd, reply, now)
	case unsubscribe:
		s.onUnsubscribeRefused(cmd, reply, now)
	case ping: // the refusal proves as much as an answer
		return s.onPinged(cmd, now)
	}
	return nil
}

// onSubscribeRefused finds out which channels a refusal is about. If the user may not use one
// channel, Redis refuses the whole SUBSCRIBE, and does not name the channel. So the hub tries
// halves, down to single channels. One denied channel of 1,000 then costs about twenty round trips.
// One by one, it would cost 1,000. If the channels may not be in one command, the hub sends each in
// a command of its own from then on. An error of another kind is not about names, and refuses all.
func (s *hubState) onSubscribeRefused(cmd *command, reply redis.Error, now time.Time) {
	if cmd.channels[0] == s.echo.channel { // waiters do not depend on it, so nobody has to know
		s.echo.channel.state = denied
		s.echo.putOff(now.Add(s.cfg.recheck))
		return
	}
	rest := slices.DeleteFunc(cmd.channels, func(c *channel) bool { return c.state != subscribing })
	if isCrossSlot(reply) && len(rest) > 1 {
		s.oneByOne = true
		for _, c := range rest {
			s.markUnsent(c)
		}
		return
	}
	if redis.IsPermissionError(reply) && len(rest) > 1 {
		half := len(rest) / 2
		s.enqueue(rest[:half:half])
		s.enqueue(rest[half:])
		return
	}
	for _, c := range rest {
		s.markDenied(c, reply, now)
	}
}

// isCrossSlot reports whether a server refuses channels of several slots in one command.
func isCrossSlot(reply redis.Error) bool { return redis.HasErrorPrefix(reply, "CROSSSLOT") }

// onUnsubscribeRefused has the hub send the channels one by one if they may not be in one command.
// Otherwise it forgets channels although the server still sends their messages. Nobody gets these
// messages, and the end of the connection ends them. A new connection would cost all other waiters
// their messages meanwhile.
func (s *hubState) onUnsubscribeRefused(cmd *command, reply redis.Error, now time.Time) {
	if isCrossSlot(reply) && len(cmd.channels) > 1 {
		s.oneByOne = true
		for _, c := range cmd.channels {
			if c.state == unsubscribing {
				c.state = subscribed
				s.markUnused(c, now)
			}
		}
		return
	}
	for _, c := range cmd.channels {
		switch {
		case c.state != unsubscribing:
		case c == s.echo.channel:
			c.state = unsent
		case len(c.subs) == 0:
			s.forget(c, now)
		default:
			s.markUnsent(c)
		}
	}
	s.log.trouble(refused, slog.Any("error", reply))
}

func (s *hubState) enqueue(part []*channel) {
	for _, c := range part {
		c.state = queued
	}
	s.refusals = append(s.refusals, part)
}

func (s *hubState) markDenied(c *channel, reply redis.Error, now time.Time) {
	c.state, c.refused, c.gapOnConfirm = denied, true, true
	s.denied[c] = struct{}{}
	c.settle()
	if at := now.Add(s.recheckPause(reply)); s.recheckAt.IsZero() || at.Before(s.recheckAt) {
		s.recheckAt = at
	}
	s.log.trouble(refused, slog.String("channel", c.name), slog.Any("error", reply))
}

// recheckPause returns when the hub tries again after a refusal. A node refuses a sharded channel
// also while the cluster is in trouble or a slot moves, and for two seconds after its start. That
// ends soon.
func (s *hubState) recheckPause(reply redis.Error) time.Duration {
	passing := slices.ContainsFunc([]string{"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "MASTERDOWN", "LOADING"}, func(code string) bool {
		return redis.HasErrorPrefix(reply, code)
	})
	if s.cfg.sharded && passing {
		return min(shardPause, s.cfg.recheck)
	}
	return s.cfg.recheck
}
