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

	// oneByOne says that a command may have one channel only, because the server wants one slot for
	// each.
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

func newHubState(cfg Config) hubState {
	r := hubState{
		cfg:      cfg,
		log:      newTroubleLog(cfg.Log),
		channels: map[string]*channel{},
		unsent:   map[*channel]struct{}{},
		denied:   map[*channel]struct{}{},
		unused:   map[*channel]struct{}{},
		echo:     echo{start: time.Now(), timeout: echoTimeout},
	}
	if cfg.Echo != nil {
		r.echo.channel = &channel{name: cfg.EchoChannel}
	}
	return r
}

// find returns the channel of a name, or nil.
func (s *hubState) find(name string) *channel {
	if c := s.echo.channel; c != nil && c.name == name {
		return c
	}
	return s.channels[name]
}

func (s *hubState) add(name string, sub *Subscription) (look bool) {
	c := s.channels[name]
	if c == nil {
		// Nobody waits for the first confirmation of a sharded channel, nor while there is no
		// connection.
		c = &channel{name: name, subs: map[*Subscription]struct{}{}, gapOnConfirm: s.cfg.sharded || s.down}
		s.channels[name] = c
		s.markUnsent(c)
		look = true
	}
	delete(s.unused, c)
	c.subs[sub] = struct{}{}
	sub.channel = c
	return look
}

// remove removes s. If nobody waits for its channel any more, the hub forgets a channel that the
// server does not know. Any other channel lingers.
func (s *hubState) remove(sub *Subscription, now time.Time) (look bool) {
	c := sub.channel
	if c == nil {
		return false
	}
	delete(c.subs, sub)
	sub.channel = nil
	switch {
	case len(c.subs) > 0, c.state == unsubscribing:
		return false
	case c.state == unsent, !s.connected, c.state == denied && s.cfg.sharded:
		s.forget(c, now)
		return false
	}
	return s.markUnused(c, now)
}

// markUnused makes the hub unsubscribe from a channel after a while, unless somebody waits for it
// again.
func (s *hubState) markUnused(c *channel, now time.Time) (look bool) {
	if len(c.subs) > 0 {
		return false
	}
	c.unusedSince = now
	s.unused[c] = struct{}{}
	if !s.sweepAt.IsZero() {
		return false // a busy lock does not wake the commander each time
	}
	s.sweepAt = now.Add(s.cfg.linger)
	return true
}

func (s *hubState) markUnsent(c *channel) {
	c.state = unsent
	s.unsent[c] = struct{}{}
}

func (s *hubState) forget(c *channel, now time.Time) {
	delete(s.channels, c.name)
	delete(s.unsent, c)
	delete(s.denied, c)
	delete(s.unused, c)
	s.emptySince = now
	if len(s.channels) == 0 {
		s.echo.stop()
	}
}

func (s *hubState) isSettled(c *channel) bool {
	return c.state == subscribed || c.state == denied || s.down || s.closed
}

// close ends all waiting. It sends nothing, because the server notices the end of the connection.
func (s *hubState) close() {
	s.closed = true
	for _, c := range s.channels {
		c.wakeAndSettle()
		for sub := range c.subs {
			sub.channel = nil
		}
	}
	clear(s.channels)
	clear(s.unsent)
	clear(s.denied)
	clear(s.unused)
	s.refusals, s.inFlight = nil, nil
	s.resetEchoes()
}

// onConnecting is called before a connection is made.
func (s *hubState) onConnecting() {
	s.connected = true
	s.pings = 0
	s.firstFrame, s.lastFrame = time.Time{}, time.Time{}
	s.resetEchoes()
}

// onDisconnect is called after a connection has ended. Nothing is subscribed any more. Every waiter
// has to ask Redis, because messages may have been missed. Refused channels keep their state,
// because the user was refused and not the connection. good reports whether the connection had
// lasted.
func (s *hubState) onDisconnect(err error, now time.Time) (good bool) {
	s.connected, s.down = false, true
	s.refusals, s.inFlight = nil, nil
	s.resetEchoes()
	s.sweepAt = time.Time{}
	for _, c := range s.channels {
		if len(c.subs) == 0 {
			s.forget(c, now)
			continue
		}
		if c.state != denied {
			s.markUnsent(c)
		}
		c.gapOnConfirm = true
		c.wakeAndSettle()
	}
	switch {
	case s.closed:
	case errors.Is(err, errDeaf):
		s.log.trouble(deaf)
	default:
		s.log.trouble(unreachable, slog.Any("error", err))
	}
	return s.lastFrame.Sub(s.firstFrame) >= s.cfg.ping
}
