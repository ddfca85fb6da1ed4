package pubsub

import (
	"slices"
	"strconv"
	"time"
)

const (
	// maxBatch bounds the channels of one command. Many channels then need few round trips, but no
	// frame keeps the server busy.
	maxBatch = 1000

	// recheckSize bounds the refused channels that the hub tries again at a time. If all of them
	// are still refused, finding that out costs twice as many commands.
	recheckSize = 64

	// answerPings is how many pings an answer may take while other frames come. A flood of messages
	// may delay an answer, but one that does not come in this time was lost.
	answerPings = 3
)

// connectionError returns an error if the present connection has to end.
func (s *hubState) connectionError(now time.Time) error {
	if s.inFlight == nil {
		if len(s.channels) > 0 || now.Sub(s.emptySince) < s.cfg.idle {
			return nil
		}
		// Decided and recorded under one lock, so that the next channel gets a new connection.
		s.connected = false
		return errIdle
	}
	if now.Sub(s.quietSince()) >= s.cfg.ping {
		return errSilent
	}
	if now.Sub(s.inFlight.sent) >= answerPings*s.cfg.ping {
		return errUnanswered
	}
	return nil
}

// quietSince returns the start of the silence that an answer has to end.
func (s *hubState) quietSince() time.Time {
	if s.inFlight.sent.After(s.lastFrame) {
		return s.inFlight.sent
	}
	return s.lastFrame
}

// next returns the command to send now, which is in flight from then on. It returns nil if there is
// none, or if one is in flight already.
func (s *hubState) next(now time.Time) *command {
	if s.inFlight != nil {
		return nil
	}
	if due(s.recheckAt, now) {
		s.recheck(recheckSize)
		s.recheckAt = time.Time{}
		if len(s.denied) > 0 {
			s.recheckAt = now.Add(s.cfg.recheck)
		}
	}
	cmd := &command{sent: now}
	if old := s.sweep(now); len(old) > 0 {
		cmd.verb, cmd.channels = unsubscribe, old
	} else if batch := s.batch(); len(batch) > 0 {
		cmd.verb, cmd.channels = subscribe, batch
	} else if echo := s.nextEcho(now); echo != nil {
		cmd = echo
	} else if now.Sub(s.lastFrame) >= s.cfg.ping || due(s.overdueAt(), now) {
		s.pings++
		cmd.verb, cmd.nonce = ping, "redlatch-"+strconv.Itoa(s.pings)
	} else {
		return nil
	}
	cmd.left = len(cmd.channels)
	s.inFlight = cmd
	return cmd
}

// sent records when cmd was written, because connecting does not count as silence.
func (s *hubState) sent(cmd *command, now time.Time) { cmd.sent = now }

// untilNext returns how long there is nothing to do if no frame comes.
func (s *hubState) untilNext(now time.Time) time.Duration {
	if s.inFlight != nil {
		return min(s.quietSince().Add(s.cfg.ping).Sub(now), s.inFlight.sent.Add(answerPings*s.cfg.ping).Sub(now))
	}
	wait := s.lastFrame.Add(s.cfg.ping).Sub(now)
	for _, at := range []time.Time{s.sweepAt, s.recheckAt, s.echo.at, s.overdueAt()} {
		if !at.IsZero() {
			wait = min(wait, at.Sub(now))
		}
	}
	if len(s.channels) == 0 {
		wait = min(wait, s.emptySince.Add(s.cfg.idle).Sub(now))
	}
	return wait
}

// batchSize returns how many channels a command may have. Sharded channels of one command must
// share a slot. Some managed services have sharded channels only.
func (s *hubState) batchSize() int {
	if s.cfg.sharded || s.oneByOne {
		return 1
	}
	return maxBatch
}

// sweep picks the channels that have been unused for long enough. It runs once per linger, and not
// exactly when each channel is due. So many channels leave in one command, and the sweep does not
// keep a busy hub busy.
func (s *hubState) sweep(now time.Time) (old []*channel) {
	if !due(s.sweepAt, now) {
		return nil
	}
	s.sweepAt = now.Add(s.cfg.linger)
	for c := range s.unused {
		if now.Sub(c.unusedSince) < s.cfg.linger {
			continue
		}
		switch c.state {
		case subscribed:
			c.state = unsubscribing
			delete(s.unused, c)
			old = append(old, c)
		case denied:
			s.forget(c, now)
		}
		if len(old) == s.batchSize() {
			s.sweepAt = now
			break
		}
	}
	if len(s.unused) == 0 {
		s.sweepAt = time.Time{}
	}
	return old
}

// batch picks the channels to subscribe to next. It alternates between wanted channels and parts of
// refused batches, so that neither delays the other.
func (s *hubState) batch() []*channel {
	if len(s.unsent) > 0 && (!s.freshLast || len(s.refusals) == 0) {
		s.freshLast = true
		return s.unsentBatch()
	}
	s.freshLast = false
	for len(s.refusals) > 0 {
		part := s.refusals[0]
		s.refusals = s.refusals[1:]
		part = slices.DeleteFunc(part, func(c *channel) bool { return c.state != queued })
		if len(part) > 0 {
			return markSubscribing(part)
		}
	}
	return nil
}

func (s *hubState) unsentBatch() (batch []*channel) {
	for c := range s.unsent {
		delete(s.unsent, c)
		if batch = append(batch, c); len(batch) == s.batchSize() {
			break
		}
	}
	return markSubscribing(batch)
}

func markSubscribing(batch []*channel) []*channel {
	for _, c := range batch {
		c.state = subscribing
	}
	return batch
}

// recheck lets the hub try up to n refused channels again, in batches of their own that cannot
// spoil others.
func (s *hubState) recheck(n int) {
	var part []*channel
	for c := range s.denied {
		if n == 0 {
			break
		}
		n--
		delete(s.denied, c)
		if part = append(part, c); len(part) == s.batchSize() {
			s.enqueue(part)
			part = nil
		}
	}
	if len(part) > 0 {
		s.enqueue(part)
	}
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }
