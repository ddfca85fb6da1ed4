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

	state    atomic.Int32
	answered chan struct{}
	err      error         // of the answer
	gone     chan struct{} // the caller has left
	late     *Late
}

const (
	waiting int32 = iota
	answered
	left
)

// answer ends a command. The caller reads err if it has not left, and else nobody does.
func (c *command) answer(err error) {
	c.err = err
	if c.state.CompareAndSwap(waiting, answered) {
		close(c.answered)
		return
	}
	if c.isLeft() {
		c.late.End(err)
	}
}

// leave leaves a command behind, unless it is answered by now.
func (c *command) leave() {
	c.late = new(Late)
	if c.state.CompareAndSwap(waiting, left) {
		close(c.gone)
	}
}

// drop reports whether the caller left before any worker took the command. Then it is not
// sent, and has no effect any more.
func (c *command) drop() bool {
	if !c.isLeft() || wasWritten(c.cmd) {
		return false
	}
	c.late.End(ErrNotSent)
	return true
}

func (c *command) isLeft() bool { return c.state.Load() == left }

// wasWritten reports whether the command was written; if not, it never will be.
func wasWritten(cmd redis.Cmder) bool {
	c, ok := cmd.(interface{ Leave() (written bool) })
	return !ok || c.Leave()
}

// Deadline is that of the caller or the end of the attempt, whichever is earlier.
func (c *command) Deadline() (time.Time, bool) { return c.end, true }

// Done is closed when the caller has left.
func (c *command) Done() <-chan struct{} { return c.gone }

// Err says why the caller has left.
func (c *command) Err() error {
	select {
	case <-c.gone:
	default:
		return nil
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}
