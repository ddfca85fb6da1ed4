package sender

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Attempt sends the commands of one attempt, such as a script by its hash and then by its text. It
// waits for each answer until it has a reason to leave. Only one goroutine may use it.
type Attempt struct {
	sender *Sender
	end    time.Time
	timer  *time.Timer // nil until the first command for a worker
	stop   <-chan struct{}
	stays  bool

	unsent    bool
	abandoned *AbandonedCommand
}

// Attempt begins an attempt. It leaves a command when limit has passed since now, when stop is
// closed, or when the context of the command ends. The caller must call End.
func (s *Sender) Attempt(limit time.Duration, stop <-chan struct{}) *Attempt {
	return &Attempt{sender: s, end: time.Now().Add(limit), stop: stop}
}

// Stay says that the caller does not have to leave before go-redis returns. Process may then send
// in the goroutine of the caller, and then does not leave for any reason.
func (a *Attempt) Stay() { a.stays = true }

// ErrUnanswered is the error of a command that its caller left behind.
var ErrUnanswered = errors.New("no answer in time")

// Process sends cmd, and blocks until the command is answered or left behind. It returns the error
// of go-redis, or ErrUnanswered if the command was left behind. The sender still uses cmd then, so
// the caller must not.
func (a *Attempt) Process(ctx context.Context, cmd redis.Cmder) error {
	// A context may panic. It must do so here, not in a worker, and not after the command was
	// written.
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

// direct sends in the goroutine of the caller, which saves the switch to a worker and back. It
// blocks until go-redis returns.
func (a *Attempt) direct(ctx context.Context, cmd redis.Cmder) (err error) {
	defer a.sender.endDirect()
	if ctx.Done() == nil { // ctx may be of any type; go-redis gets only its values
		ctx = context.WithoutCancel(ctx)
	}
	err = a.sender.sendOne(ctx, cmd)
	a.unsent = err != nil && !wasWritten(cmd)
	return err
}

// End stops the timer of the attempt.
func (a *Attempt) End() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// Unsent reports whether the last command failed, or was left behind, before go-redis wrote it. If
// so, it will never be written.
func (a *Attempt) Unsent() bool { return a.unsent }

// AbandonedCommand returns the command that the attempt left behind, or nil if there is none.
func (a *Attempt) AbandonedCommand() *AbandonedCommand { return a.abandoned }
