package sender

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// command is one command on its way, and the context under which go-redis sends it: that
// of its caller, which ends when the caller leaves or the attempt ends.
type command struct {
	context.Context
	cmd redis.Cmder
	end time.Time

	state     atomic.Int32
	answered  chan struct{}
	err       error         // of the answer
	abandoned chan struct{} // the caller has left
	outcome   *AbandonedCommand
}

const (
	stateWaiting int32 = iota
	stateAnswered
	stateAbandoned
)

// answer ends a command. The caller reads err if it has not left, and else nobody does.
func (c *command) answer(err error) {
	c.err = err
	if c.state.CompareAndSwap(stateWaiting, stateAnswered) {
		close(c.answered)
	} else if c.isAbandoned() {
		c.outcome.End(err)
	}
}

// abandon leaves a command behind, unless it is answered by now.
func (c *command) abandon() {
	c.outcome = new(AbandonedCommand)
	if c.state.CompareAndSwap(stateWaiting, stateAbandoned) {
		close(c.abandoned)
	}
}

// dropUnsent reports whether the caller left before any worker took the command. Then it is not
// sent, and has no effect any more.
func (c *command) dropUnsent() bool {
	if !c.isAbandoned() || wasWritten(c.cmd) {
		return false
	}
	c.outcome.End(ErrNotSent)
	return true
}

func (c *command) isAbandoned() bool { return c.state.Load() == stateAbandoned }

// wasWritten reports whether the command was written; if not, it never will be.
func wasWritten(cmd redis.Cmder) bool {
	c, ok := cmd.(interface{ Abandon() (written bool) })
	return !ok || c.Abandon()
}

// Deadline is that of the caller or the end of the attempt, whichever is earlier.
func (c *command) Deadline() (time.Time, bool) { return c.end, true }

// Done is closed when the caller has left.
func (c *command) Done() <-chan struct{} { return c.abandoned }

// Err says why the caller has left.
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
