package sender

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// command is one command in the sender. It is also the context under which go-redis sends the
// command. That context has the values of the caller's context, and ends when the caller leaves.
type command struct {
	context.Context
	cmd redis.Cmder
	end time.Time

	state     atomic.Int32
	answered  chan struct{}
	err       error         // of go-redis; the caller reads it after answered
	abandoned chan struct{} // closed when the caller leaves
	outcome   *AbandonedCommand
}

const (
	stateWaiting int32 = iota
	stateAnswered
	stateAbandoned
)

// answer ends a command with err. If the caller has not left, it gets err. Otherwise the callbacks
// of AbandonedCommand get it.
func (c *command) answer(err error) {
	c.err = err
	if c.state.CompareAndSwap(stateWaiting, stateAnswered) {
		close(c.answered)
	} else if c.isAbandoned() {
		c.outcome.End(err)
	}
}

// abandon leaves a command behind, unless it has an answer.
func (c *command) abandon() {
	c.outcome = new(AbandonedCommand)
	if c.state.CompareAndSwap(stateWaiting, stateAbandoned) {
		close(c.abandoned)
	}
}

// dropUnsent reports whether a worker must not send the command, because its caller has left. If
// so, it ends the command with ErrNotSent, and the command never takes effect.
func (c *command) dropUnsent() bool {
	if !c.isAbandoned() || wasWritten(c.cmd) {
		return false
	}
	c.outcome.End(ErrNotSent)
	return true
}

func (c *command) isAbandoned() bool { return c.state.Load() == stateAbandoned }

// wasWritten reports whether go-redis wrote the command. If not, wasWritten makes sure that it
// never will be. For a command without an Abandon method, it returns true.
func wasWritten(cmd redis.Cmder) bool {
	c, ok := cmd.(interface{ Abandon() (written bool) })
	return !ok || c.Abandon()
}

// Deadline returns the deadline of the caller or the end of the attempt, whichever is earlier.
func (c *command) Deadline() (time.Time, bool) { return c.end, true }

// Done returns a channel that is closed when the caller leaves.
func (c *command) Done() <-chan struct{} { return c.abandoned }

// Err returns why the caller has left, or nil if it has not.
func (c *command) Err() error {
	select {
	case <-c.abandoned:
	default:
		return nil
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}
