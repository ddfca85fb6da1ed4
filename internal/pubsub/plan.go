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

	// answerPings is how many Pings an answer may take while other frames come. A flood of messages
	// may delay an answer, but one that does not come in this time was lost.
	answerPings = 3
)

// connectionError returns an error if the present connection has to end.
func (r *hubState) connectionError(now time.Time) error {
	if r.inFlight == nil {
		if len(r.channels) > 0 || now.Sub(r.emptySince) < r.cfg.Idle {
			return nil
		}
		// Decided and recorded under one lock, so that the next channel gets a new connection.
		r.connected = false
		return errIdle
	}
	if now.Sub(r.quietSince()) >= r.cfg.Ping {
		return errSilent
	}
	if now.Sub(r.inFlight.sent) >= answerPings*r.cfg.Ping {
		return errUnanswered
	}
	return nil
}

// quietSince returns the start of the silence that an answer has to end.
func (r *hubState) quietSince() time.Time {
	if r.inFlight.sent.After(r.lastFrame) {
		return r.inFlight.sent
	}
	return r.lastFrame
}

// next returns the command to send now, which is in flight from then on. It returns nil if there is
// none, or if one is in flight already.
func (r *hubState) next(now time.Time) *command {
	if r.inFlight != nil {
		return nil
	}
	if due(r.recheckAt, now) {
		r.recheck(recheckSize)
		r.recheckAt = time.Time{}
		if len(r.denied) > 0 {
			r.recheckAt = now.Add(r.cfg.Recheck)
		}
	}
	cmd := &command{sent: now}
	if old := r.sweep(now); len(old) > 0 {
		cmd.verb, cmd.channels = unsubscribe, old
	} else if batch := r.batch(); len(batch) > 0 {
		cmd.verb, cmd.channels = subscribe, batch
	} else if echo := r.nextEcho(now); echo != nil {
		cmd = echo
	} else if now.Sub(r.lastFrame) >= r.cfg.Ping || due(r.overdueAt(), now) {
		r.pings++
		cmd.verb, cmd.nonce = ping, "redlatch-"+strconv.Itoa(r.pings)
	} else {
		return nil
	}
	cmd.left = len(cmd.channels)
	r.inFlight = cmd
	return cmd
}

// sent records when cmd was written, because connecting does not count as silence.
func (r *hubState) sent(cmd *command, now time.Time) { cmd.sent = now }

// untilNext returns how long there is nothing to do if no frame comes.
func (r *hubState) untilNext(now time.Time) time.Duration {
	if r.inFlight != nil {
		return min(r.quietSince().Add(r.cfg.Ping).Sub(now), r.inFlight.sent.Add(answerPings*r.cfg.Ping).Sub(now))
	}
	wait := r.lastFrame.Add(r.cfg.Ping).Sub(now)
	for _, at := range []time.Time{r.sweepAt, r.recheckAt, r.echo.at, r.overdueAt()} {
		if !at.IsZero() {
			wait = min(wait, at.Sub(now))
		}
	}
	if len(r.channels) == 0 {
		wait = min(wait, r.emptySince.Add(r.cfg.Idle).Sub(now))
	}
	return wait
}

// batchSize returns how many channels a command may have. Sharded channels of one command must share a slot.
// Some managed services have sharded channels only.
func (r *hubState) batchSize() int {
	if r.cfg.sharded || r.oneByOne {
		return 1
	}
	return maxBatch
}

// sweep picks the channels that have been unused for long enough. It runs once per Linger, and not
// exactly when each channel is due. So many channels leave in one command, and the sweep does not
// keep a busy hub busy.
func (r *hubState) sweep(now time.Time) (old []*channel) {
	if !due(r.sweepAt, now) {
		return nil
	}
	r.sweepAt = now.Add(r.cfg.Linger)
	for c := range r.unused {
		if now.Sub(c.unusedSince) < r.cfg.Linger {
			continue
		}
		switch c.state {
		case subscribed:
			c.state = unsubscribing
			delete(r.unused, c)
			old = append(old, c)
		case denied:
			r.forget(c, now)
		}
		if len(old) == r.batchSize() {
			r.sweepAt = now
			break
		}
	}
	if len(r.unused) == 0 {
		r.sweepAt = time.Time{}
	}
	return old
}

// batch picks the channels to subscribe to next. It alternates between wanted channels and parts of
// refused batches, so that neither delays the other.
func (r *hubState) batch() []*channel {
	if len(r.unsent) > 0 && (!r.freshLast || len(r.refusals) == 0) {
		r.freshLast = true
		return r.unsentBatch()
	}
	r.freshLast = false
	for len(r.refusals) > 0 {
		part := r.refusals[0]
		r.refusals = r.refusals[1:]
		part = slices.DeleteFunc(part, func(c *channel) bool { return c.state != queued })
		if len(part) > 0 {
			return markSubscribing(part)
		}
	}
	return nil
}

func (r *hubState) unsentBatch() (batch []*channel) {
	for c := range r.unsent {
		delete(r.unsent, c)
		if batch = append(batch, c); len(batch) == r.batchSize() {
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
func (r *hubState) recheck(n int) {
	var part []*channel
	for c := range r.denied {
		if n == 0 {
			break
		}
		n--
		delete(r.denied, c)
		if part = append(part, c); len(part) == r.batchSize() {
			r.enqueue(part)
			part = nil
		}
	}
	if len(part) > 0 {
		r.enqueue(part)
	}
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }
