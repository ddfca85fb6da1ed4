package sender

import "time"

const (
	// DirectFor is how long go-redis waits for the answer to a command that its caller sends. So
	// the caller returns at most that long after it should.
	DirectFor = 20 * time.Millisecond
	// fastLink is how soon the last command must have been answered for the next caller to send by
	// itself. A client with answers near DirectFor would lose a connection with each command.
	fastLink = DirectFor / 4
	// stuckAfter is how long after DirectFor a caller counts as stuck, in a hook that ignores the
	// end of its context.
	stuckAfter = 100 * time.Millisecond
)

// direct decides whether a caller may send in its own goroutine. It is guarded by Sender.mu.
type direct struct {
	taken   bool     // an attempt sends in this way
	command *command // that it sends now; nil: none
	fast    bool     // the last command was answered soon
	never   bool     // a caller was stuck, or a hook panicked
}

// measure notes how long the last command took.
func (d *direct) measure(took time.Duration) { d.fast = took < fastLink }

// tick makes go-redis give up the command if its time is over, and looks for a caller that is stuck
// all the same.
func (d *direct) tick(o *overdue, now time.Time) {
	switch c := d.command; {
	case c == nil:
	case c.isWaiting():
		o.leave([]*command{c}, now)
		o.await(c.leaveAt.Add(stuckAfter))
	case now.Before(c.leaveAt.Add(stuckAfter)):
		o.await(c.leaveAt.Add(stuckAfter))
	default:
		d.never = true
	}
}

// beginDirect reports whether an attempt may send in the goroutine of its caller. It may if the
// last command was answered soon, no other attempt sends in this way, and no command waits. Also,
// no worker may wait for an answer, except one that tick has found slow. Otherwise commands go out
// with others, which costs less. If beginDirect returns true, the attempt must call endDirect.
func (s *Sender) beginDirect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.direct
	if !s.cfg.Direct || !d.fast || d.never || d.taken || len(s.queue) > 0 || s.prompt > 0 {
		return false
	}
	d.taken = true
	return true
}

func (s *Sender) endDirect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct.taken = false
}

// setDirect notes the command that a caller sends by itself.
func (s *Sender) setDirect(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct.command = c
	s.tickBy(c.leaveAt)
}

// directSent notes that this command has been sent, and how long that took.
func (s *Sender) directSent(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct.command = nil
	s.direct.measure(took)
}
