package sender

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Attempt sends the commands of one attempt, such as a script by its hash and then by its text. It
// waits for each answer until it has a reason to leave. Only one goroutine may use it.
type Attempt struct {
	sender *Sender
	end    time.Time
	stop   <-chan struct{}

	// Direct says that the caller sends in its own goroutine, and no worker. Process then obeys the
	// deadline of a context, but does not notice a cancel or the closing of stop.
	Direct bool

	// Wait goes with each command; nil: none does. An attempt with a Wait must not be direct.
	Wait *Wait
	// Acknowledged is how many replicas acknowledged the last command that was answered.
	Acknowledged int

	// Unsent says that the last command failed, or was left behind, before go-redis wrote it. If
	// so, it will never be written.
	Unsent bool
	// Abandoned is the command that the attempt left behind, or nil if there is none.
	Abandoned *AbandonedCommand

	first command // most attempts send one command, which then needs no memory of its own
}

// Attempt begins an attempt. Process leaves a command after limit, when stop is closed, or when the
// context of the command ends. If the attempt is direct, it ends after DirectFor at the latest, or
// at the deadline of the context. It is never direct if byWorker is set. The caller must call End.
func (s *Sender) Attempt(limit time.Duration, stop <-chan struct{}, byWorker bool) *Attempt {
	a := &Attempt{sender: s, stop: stop}
	now := time.Now()
	if a.Direct = !byWorker && s.beginDirect(); a.Direct {
		limit = min(limit, DirectFor)
	}
	a.end = now.Add(limit)
	return a
}

// End ends the attempt.
func (a *Attempt) End() {
	if a.Direct {
		a.sender.endDirect()
	}
}

// ErrUnanswered is the error of a command that its caller left behind.
var ErrUnanswered = errors.New("no answer in time")

// Bounded is a context that ends at a known time by itself. A command that waits for its end by the
// timer of the sender needs none of its own.
type Bounded interface {
	// EndsAt returns that time, or zero, and a channel that is closed if the context may have ended
	// before.
	EndsAt() (end time.Time, earlier <-chan struct{})
}

// Process sends cmd, and blocks until the command is answered or left behind. It returns the error
// of go-redis, or ErrUnanswered if the command was left behind. The sender still uses cmd then, so
// the caller must not.
func (a *Attempt) Process(ctx context.Context, cmd redis.Cmder) error {
	// A context may panic. It must do so here, not in a worker, and not after the command was
	// written.
	c := &a.first
	if c.cmd != nil {
		c = &command{}
	}
	c.Context, c.cmd, c.wait, c.end, c.leaveAt = ctx, cmd, a.Wait, a.end, a.end
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(c.end) {
		c.end = deadline
	}
	bounded, isBounded := ctx.(Bounded)
	var done <-chan struct{}
	if isBounded {
		var end time.Time
		if end, done = bounded.EndsAt(); !end.IsZero() && end.Before(c.leaveAt) {
			c.leaveAt = end
		}
	} else {
		done = ctx.Done()
	}
	if a.Direct {
		return a.sendDirect(c)
	}
	a.sender.enqueue(c)
	for waits := true; waits; {
		waits = false
		select {
		case <-c.settled:
		case <-done:
			if isBounded && ctx.Err() == nil { // what ended does not end ctx yet
				isBounded, waits, done = false, true, ctx.Done()
				continue
			}
			c.leave()
		case <-a.stop:
			c.leave()
		}
	}
	a.sender.signals.Put(c.settled)
	if c.isAbandoned() {
		a.Abandoned, a.Unsent = &c.outcome, !wasWritten(cmd)
		return ErrUnanswered
	}
	a.Unsent, a.Acknowledged = c.err != nil && !wasWritten(cmd), c.acknowledged
	return c.err
}

// sendDirect sends in the goroutine of the caller, which saves the switch to a worker and back. It
// blocks until go-redis returns: after DirectFor at the latest, unless a hook blocks.
func (a *Attempt) sendDirect(c *command) (err error) {
	began := time.Now()
	a.sender.setDirect(c)
	defer func() { a.sender.directSent(time.Since(began)) }()
	defer c.settle(stateAnswered) // which ends the context that hooks have got
	err = a.sender.sendOne(c)
	if err == nil {
		a.Unsent = false
		return nil
	}
	a.Unsent = !wasWritten(c.cmd)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() && !a.Unsent && !isDial(err) {
		return ErrUnanswered // and go-redis has closed the connection, so no answer will come
	}
	return err
}

// isDial reports whether go-redis had no connection. A cluster client counts a command as written
// before that.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
