package pubsub

import (
	"errors"
	"log/slog"
	"time"
)

// hubState is what the hub knows: the waiters of each channel, what the server has confirmed, and
// the command in flight. It does no I/O and takes no lock, because Hub.mu guards it. Methods that
// return look report whether the commander has something to do.
type hubState struct {
	cfg Config
	log *troubleLog

	channels map[string]*channel
	unsent   map[*channel]struct{} // channels in that state
	denied   map[*channel]struct{} // likewise
	unused   map[*channel]struct{} // without subscriptions, still known to the server
	refusals [][]*channel          // parts of refused batches, to be tried by themselves

	// oneByOne says that a command may have one channel only, because the server wants one slot for each.
	oneByOne bool

	started, closed bool
	down            bool // the last connection ended badly, and no frame has come since

	echo echo

	// About the present connection.
	connected  bool // there is one, or one is being made
	inFlight   *command
	pings      int
	freshLast  bool // the last batch was of wanted channels, not of a refusal
	firstFrame time.Time
	lastFrame  time.Time

	// Times to do something; zero means never.
	sweepAt    time.Time
	recheckAt  time.Time
	emptySince time.Time // when the last channel was forgotten
}

func newHubState(cfg Config, log *troubleLog) hubState {
	r := hubState{
		cfg:      cfg,
		log:      log,
		channels: map[string]*channel{},
		unsent:   map[*channel]struct{}{},
		denied:   map[*channel]struct{}{},
		unused:   map[*channel]struct{}{},
		echo:     echo{start: time.Now(), timeout: cfg.EchoTimeout},
	}
	if cfg.Echo != nil {
		r.echo.channel = &channel{name: cfg.EchoChannel}
	}
	return r
}

// find returns the channel of a name, or nil.
func (r *hubState) find(name string) *channel {
	if c := r.echo.channel; c != nil && c.name == name {
		return c
	}
	return r.channels[name]
}

func (r *hubState) add(name string, s *Subscription) (look bool) {
	c := r.channels[name]
	if c == nil {
		// Nobody waits for the first confirmation of a sharded channel, nor while there is no connection.
		c = &channel{name: name, gapOnConfirm: r.cfg.sharded || r.down}
		r.channels[name] = c
		r.markUnsent(c)
		look = true
	}
	delete(r.unused, c)
	c.addSub(s)
	return look
}

// remove removes s. If nobody waits for its channel any more, the hub forgets a channel that the
// server does not know. Any other channel lingers.
func (r *hubState) remove(s *Subscription, now time.Time) (look bool) {
	c := s.channel
	if c == nil {
		return false
	}
	c.removeSub(s)
	switch {
	case len(c.subs) > 0, c.state == unsubscribing:
		return false
	case c.state == unsent, !r.connected, c.state == denied && r.cfg.sharded:
		r.forget(c, now)
		return false
	}
	return r.markUnused(c, now)
}

// markUnused makes the hub unsubscribe from a channel after a while, unless somebody waits for it again.
func (r *hubState) markUnused(c *channel, now time.Time) (look bool) {
	if len(c.subs) > 0 {
		return false
	}
	c.unusedSince = now
	r.unused[c] = struct{}{}
	if !r.sweepAt.IsZero() {
		return false // a busy lock does not wake the commander each time
	}
	r.sweepAt = now.Add(r.cfg.Linger)
	return true
}

func (r *hubState) markUnsent(c *channel) {
	c.state = unsent
	r.unsent[c] = struct{}{}
}

func (r *hubState) forget(c *channel, now time.Time) {
	delete(r.channels, c.name)
	delete(r.unsent, c)
	delete(r.denied, c)
	delete(r.unused, c)
	r.emptySince = now
	if len(r.channels) == 0 {
		r.echo.stop()
	}
}

func (r *hubState) isSettled(c *channel) bool {
	return c.state == subscribed || c.state == denied || r.down || r.closed
}

// close ends all waiting. It sends nothing, because the server notices the end of the connection.
func (r *hubState) close() {
	r.closed = true
	for _, c := range r.channels {
		c.wakeAndSettle()
		for len(c.subs) > 0 {
			c.removeSub(c.subs[0])
		}
	}
	clear(r.channels)
	clear(r.unsent)
	clear(r.denied)
	clear(r.unused)
	r.refusals, r.inFlight = nil, nil
	r.resetEchoes()
}

// onConnecting is called before a connection is made.
func (r *hubState) onConnecting() {
	r.connected = true
	r.pings = 0
	r.firstFrame, r.lastFrame = time.Time{}, time.Time{}
	r.resetEchoes()
}

// onDisconnect is called after a connection has ended. Nothing is subscribed any more. Every waiter
// has to ask Redis, because messages may have been missed. Refused channels keep their state,
// because the user was refused and not the connection. good reports whether the connection had
// lasted.
func (r *hubState) onDisconnect(err error, now time.Time) (good bool) {
	r.connected, r.down = false, true
	r.refusals, r.inFlight = nil, nil
	r.resetEchoes()
	r.sweepAt = time.Time{}
	for _, c := range r.channels {
		if len(c.subs) == 0 {
			r.forget(c, now)
			continue
		}
		if c.state != denied {
			r.markUnsent(c)
		}
		c.gapOnConfirm = true
		c.wakeAndSettle()
	}
	switch {
	case r.closed:
	case errors.Is(err, errDeaf):
		r.log.trouble(deaf)
	default:
		r.log.trouble(unreachable, slog.Any("error", err))
	}
	return r.lastFrame.Sub(r.firstFrame) >= r.cfg.Ping
}
