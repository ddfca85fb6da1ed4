package wake

import (
	"log/slog"
	"time"
)

// registry is what the hub knows: the waiters of each channel, what the server has confirmed, and
// the command in flight. It does no I/O and takes no lock, because Hub.mu guards it. Methods that
// return look report whether the commander has something to do.
type registry struct {
	cfg Config
	log *journal

	channels map[string]*channel
	wanted   map[*channel]struct{} // channels in that state
	denied   map[*channel]struct{} // likewise
	unused   map[*channel]struct{} // without subscriptions, still known to the server
	refusals [][]*channel          // parts of refused batches, to be tried by themselves

	started, closed bool
	down            bool // the last connection ended badly, and no frame has come since

	// About the present connection.
	linked     bool // there is one, or one is being made
	asked      *command
	pings      int
	freshLast  bool // the last batch was of wanted channels, not of a refusal
	firstHeard time.Time
	lastHeard  time.Time

	// Times to do something; zero means never.
	sweepAt   time.Time
	recheckAt time.Time
	deserted  time.Time // when the last channel was forgotten
}

func newRegistry(cfg Config, log *journal) registry {
	return registry{
		cfg:      cfg,
		log:      log,
		channels: map[string]*channel{},
		wanted:   map[*channel]struct{}{},
		denied:   map[*channel]struct{}{},
		unused:   map[*channel]struct{}{},
	}
}

func (r *registry) add(name string, s *Subscription) (look bool) {
	c := r.channels[name]
	if c == nil {
		c = &channel{name: name}
		r.channels[name] = c
		r.want(c)
		look = true
	}
	delete(r.unused, c)
	c.join(s)
	return look
}

// remove removes s. If nobody waits for its channel any more, the hub forgets a channel that the
// server does not know. Any other channel lingers.
func (r *registry) remove(s *Subscription, now time.Time) (look bool) {
	c := s.channel
	if c == nil {
		return false
	}
	c.part(s)
	switch {
	case len(c.subs) > 0, c.state == leaving:
		return false
	case c.state == wanted, !r.linked:
		r.forget(c, now)
		return false
	}
	c.unused = now
	r.unused[c] = struct{}{}
	if !r.sweepAt.IsZero() {
		return false // a busy lock does not wake the commander each time
	}
	r.sweepAt = now.Add(r.cfg.Linger)
	return true
}

func (r *registry) want(c *channel) {
	c.state = wanted
	r.wanted[c] = struct{}{}
}

func (r *registry) forget(c *channel, now time.Time) {
	delete(r.channels, c.name)
	delete(r.wanted, c)
	delete(r.denied, c)
	delete(r.unused, c)
	r.deserted = now
}

func (r *registry) isSettled(c *channel) bool {
	return c.state == live || c.state == denied || r.down || r.closed
}

// close ends all waiting. It sends nothing, because the server notices the end of the connection.
func (r *registry) close() {
	r.closed = true
	for _, c := range r.channels {
		c.tell()
		for len(c.subs) > 0 {
			c.part(c.subs[0])
		}
	}
	clear(r.channels)
	clear(r.wanted)
	clear(r.denied)
	clear(r.unused)
	r.refusals, r.asked = nil, nil
}

// begin is called before a connection is made.
func (r *registry) begin() {
	r.linked = true
	r.pings = 0
	r.firstHeard, r.lastHeard = time.Time{}, time.Time{}
}

// lost is called after a connection has ended. Nothing is subscribed any more. Every waiter has to
// ask Redis, because messages may have been missed. Refused channels keep their state, because the
// user was refused and not the connection. lost reports whether the connection had lasted.
func (r *registry) lost(err error, now time.Time) (good bool) {
	r.linked, r.down = false, true
	r.refusals, r.asked = nil, nil
	r.sweepAt = time.Time{}
	for _, c := range r.channels {
		if len(c.subs) == 0 {
			r.forget(c, now)
			continue
		}
		if c.state != denied {
			r.want(c)
		}
		c.tell()
	}
	if !r.closed {
		r.log.trouble(unreachable, slog.Any("error", err))
	}
	return r.lastHeard.Sub(r.firstHeard) >= r.cfg.Ping
}
