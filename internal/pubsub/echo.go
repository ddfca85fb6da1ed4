package pubsub

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"
)

// ErrEchoRefused is the error of Config.Echo if Redis refuses the command. The hub then sends the
// next echo after timings.recheck only.
var ErrEchoRefused = errors.New("redlatch: redis refuses the echo")

// echo finds out whether the connection still gets messages. While somebody waits, the hub sends a
// message to a channel of its own now and then. Config.Echo sends it the way releases go, and not
// on the connection. If it does not come back, although the connection answers a PING after it, the
// connection gets no messages: its server is not, or no more, the one that has the locks.
//
// An echo that never came back proves nothing. The user may lack the permission, or a proxy may not
// forward it. So the hub judges nothing before the first echo has come back.
type echo struct {
	start    time.Time     // of the hub
	channel  *channel      // not in hubState.channels; nil: the hub sends no echoes
	known    bool          // an echo came back, on this connection or an earlier one
	timeout  time.Duration // how long an echo may take
	slowness time.Duration // timeout is not below it; it shrinks within minutes
	putOffTo time.Time     // Redis refused the last one, so the hub sends none before

	// About the present connection, since somebody waits.
	round   int       // so that the result of an earlier Config.Echo does not count
	at      time.Time // when to subscribe, or to send the next echo; zero: not yet known
	sending bool      // Config.Echo is running
	early   bool      // the echo came back before Config.Echo returned
	sent    time.Time // when Config.Echo had sent the echo that is out; zero: none is
}

// stop ends the echoes until start.
func (e *echo) stop() {
	e.round++
	e.at, e.sent, e.sending, e.early = time.Time{}, time.Time{}, false, false
}

// resetEchoes is called when no command for the channel of the echoes is in flight any more.
func (s *hubState) resetEchoes() {
	s.echo.stop()
	if s.echo.channel != nil {
		s.echo.channel.state = unsent
	}
}

// putOff makes the next echo wait, also on another connection.
func (e *echo) putOff(to time.Time) {
	e.sent, e.at, e.putOffTo = time.Time{}, to, to
}

// startEchoes is called when a channel is confirmed. The first echo comes after a while, so that a
// short wait costs none.
func (s *hubState) startEchoes(now time.Time) {
	e := &s.echo
	if e.channel != nil && e.at.IsZero() && e.sent.IsZero() && !e.sending {
		e.at = now.Add(s.echoPause())
		if e.at.Before(e.putOffTo) {
			e.at = e.putOffTo
		}
	}
}

// echoPause returns the time between two echoes. A third of it is random, so that many clients do
// not send theirs together.
func (s *hubState) echoPause() time.Duration {
	return echoInterval - rand.N(echoInterval/3+1)
}

// nextEcho returns a command for the channel of the echoes, or nil.
func (s *hubState) nextEcho(now time.Time) *command {
	c := s.echo.channel
	switch {
	case c == nil:
	case len(s.channels) == 0 && c.state == subscribed:
		c.state = unsubscribing
		return &command{verb: unsubscribe, channels: []*channel{c}, sent: now}
	case due(s.echo.at, now) && (c.state == unsent || c.state == denied):
		return &command{verb: subscribe, channels: markSubscribing([]*channel{c}), sent: now}
	}
	return nil
}

// takeEcho reports whether the hub has to call Config.Echo now. The result goes to onEchoSent.
func (s *hubState) takeEcho(now time.Time) (round int, text string, ok bool) {
	e := &s.echo
	if e.channel == nil || e.channel.state != subscribed || !due(e.at, now) {
		return 0, "", false
	}
	e.at, e.sending, e.early = time.Time{}, true, false
	return e.round, e.echoText(now), true
}

// onEchoSent gets the result of Config.Echo.
func (s *hubState) onEchoSent(round int, err error, now time.Time) (look bool) {
	e := &s.echo
	if round != e.round {
		return false
	}
	e.sending = false
	switch {
	case errors.Is(err, ErrEchoRefused):
		e.putOff(now.Add(s.cfg.recheck))
	case err != nil: // the servers change perhaps, so it is time to know soon
		e.at = now.Add(s.echoPause() / 3)
	case e.early:
		e.at = now.Add(s.echoPause())
	default:
		e.sent = now
	}
	return true
}

// echoText returns the text of an echo that is sent now. It says when, so that also a late echo
// tells how long echoes take.
func (e *echo) echoText(now time.Time) string {
	return strconv.FormatInt(int64(now.Sub(e.start)), 10)
}

// onEcho is called for each message on the channel of the echoes. Also a late one, of an earlier
// connection, says that this one gets messages.
func (s *hubState) onEcho(text string, now time.Time) (look bool) {
	e := &s.echo
	sent, err := strconv.ParseInt(text, 10, 64)
	took := now.Sub(e.start) - time.Duration(sent)
	if err != nil || sent < 0 || took < 0 {
		return false // somebody else's
	}
	// Messages that are only slow must not end one connection after the other, even if most are not
	// slow: a server may be busy now and then.
	e.slowness = max(e.slowness-e.slowness/128, min(2*took, longestSlowness))
	e.timeout = max(echoTimeout, e.slowness, min(max(e.timeout/2, 2*took), longestEchoTimeout))
	e.known, e.early = true, true
	s.log.recovered(deaf)
	if e.sent.IsZero() {
		return false
	}
	e.sent, e.at = time.Time{}, now.Add(s.echoPause())
	return true
}

const (
	// longestEchoTimeout bounds how long the hub waits for an echo.
	longestEchoTimeout = 5 * time.Minute
	// longestSlowness bounds what the hub remembers of a slow echo, because it notices a deaf
	// connection that much later.
	longestSlowness = 5 * time.Second
)

// overdueAt returns when the echo that is out should have come back, or zero if none is out.
func (s *hubState) overdueAt() time.Time {
	if s.echo.sent.IsZero() {
		return time.Time{}
	}
	return s.echo.sent.Add(s.echo.timeout)
}

// onPinged is called when a PING was answered. It returns an error if the connection gets no
// messages: the echo was overdue when the hub sent the PING, and did not even come before the
// answer. So a slow server, or a process that was stopped, does not look like a deaf connection.
func (s *hubState) onPinged(cmd *command, now time.Time) error {
	e := &s.echo
	if !due(s.overdueAt(), cmd.sent) {
		return nil
	}
	if !e.known {
		e.putOff(now.Add(s.cfg.recheck))
		return nil
	}
	e.timeout = min(2*e.timeout, longestEchoTimeout)
	e.slowness = max(e.slowness, min(e.timeout, longestSlowness)) // the echo may be slow, and not lost
	return errDeaf
}

// sendEcho calls Config.Echo, which may run hooks of the user.
func (h *Hub) sendEcho(round int, text string) {
	err := errExited
	defer func() {
		h.update(func(r *hubState, now time.Time) bool { return r.onEchoSent(round, err, now) })
	}()
	err = recoverPanic(func() error { return h.cfg.Echo(h.ctx, text) })
}
