package wake

import (
	"log/slog"
	"time"
)

// registry is the hub's knowledge: who waits for what, what the server has
// confirmed, what is under way. It does no I/O and takes no lock; Hub.mu guards
// it. Methods that return look tell whether the commander has something to do.
type registry struct {
	cfg Config
	log *journal

	channels map[string]*channel
	wanted   map[*channel]struct{} // those in that state
	denied   map[*channel]struct{} // likewise
	unused   map[*channel]struct{} // without subscriptions, still known to the server
	refusals [][]*channel          // parts of refused batches, to be tried by themselves

	started, closed bool
	down            bool // the last connection ended badly, and no other has spoken yet

	// Of the present connection.
	linked     bool // there is one, or one is being made
	asked      *command
	pings      int
	freshLast  bool // the last batch was of wanted channels, not of a refusal
	firstHeard time.Time
	lastHeard  time.Time

	// When to do something; zero means never.
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

// remove takes s away. A channel nobody waits for any more is forgotten at once
// if the server does not know of it; otherwise it lingers.
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
		return false // a hot lock does not trouble the commander each time
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

// close ends all waiting. Nothing is told to the server: the connection's end
// says it all.
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

// lost is called after a connection has ended: nothing is subscribed any more,
// and every waiter has to look, since messages may have been missed. Refused
// channels keep their state, for the refusal was not the connection's. It reports
// whether the connection had lasted.
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
