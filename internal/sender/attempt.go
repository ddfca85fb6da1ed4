package sender

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Attempt sends what belongs together, such as a script by its hash and then by its text,
// and waits for the answers until it is left. It is for one goroutine.
type Attempt struct {
	sender *Sender
	end    time.Time
	timer  *time.Timer // nil until a worker sends
	stop   <-chan struct{}
	stays  bool

	unsent    bool
	abandoned *AbandonedCommand
}

// Attempt begins an attempt that is left when limit has passed, when stop is closed, or
// when the context of a command ends.
func (s *Sender) Attempt(limit time.Duration, stop <-chan struct{}) *Attempt {
	return &Attempt{sender: s, end: time.Now().Add(limit), stop: stop}
}

// Stay says that the caller has no need to leave before go-redis returns. Then the attempt
// may send in the goroutine of the caller.
func (a *Attempt) Stay() { a.stays = true }

// ErrUnanswered is a command that was left behind.
var ErrUnanswered = errors.New("no answer in time")

// Process sends cmd. It returns when the command is answered, or is left behind: then the
// error is ErrUnanswered, and cmd belongs to the sender.
func (a *Attempt) Process(ctx context.Context, cmd redis.Cmder) error {
	// First of all: a context may panic, and must not do so in a worker, nor when the command
	// was written.
	deadline, ok := ctx.Deadline()
	if a.stays && a.sender.beginDirect() {
		return a.direct(ctx, cmd)
	}
	c := &command{Context: ctx, cmd: cmd, end: a.end, answered: make(chan struct{}), abandoned: make(chan struct{})}
	if ok && deadline.Before(c.end) {
		c.end = deadline
	}
	done := ctx.Done()
	if a.timer == nil {
		a.timer = time.NewTimer(time.Until(a.end))
	}
	a.sender.enqueue(c)
	select {
	case <-c.answered:
	case <-done:
		c.abandon()
	case <-a.timer.C:
		c.abandon()
	case <-a.stop:
		c.abandon()
	}
	if c.isAbandoned() {
		a.abandoned, a.unsent = c.outcome, !wasWritten(cmd)
		return ErrUnanswered
	}
	a.unsent = c.err != nil && !wasWritten(cmd)
	return c.err
}

// direct sends in the goroutine of the caller, which saves the switch to a worker and back.
func (a *Attempt) direct(ctx context.Context, cmd redis.Cmder) (err error) {
	defer a.sender.endDirect()
	if ctx.Done() == nil { // it may be of any type: go-redis asks it for values only
		ctx = context.WithoutCancel(ctx)
	}
	err = a.sender.sendOne(ctx, cmd)
	a.unsent = err != nil && !wasWritten(cmd)
	return err
}

// End ends the attempt.
func (a *Attempt) End() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// Unsent reports whether the last command failed, or was left, before it was written. It
// never will be.
func (a *Attempt) Unsent() bool { return a.unsent }

// AbandonedCommand is the command that was left behind; nil when all were answered.
func (a *Attempt) AbandonedCommand() *AbandonedCommand { return a.abandoned }
