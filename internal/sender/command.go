package sender

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// command is one command in the sender. It is also the context under which go-redis sends the
// command. That context has the values of the caller's context. It ends when the caller leaves, or
// when the command is answered.
type command struct {
	context.Context
	cmd     redis.Cmder
	wait    *Wait     // goes with cmd; nil for most
	end     time.Time // the deadline that go-redis gets
	leaveAt time.Time // when the sender makes the caller leave

	state        atomic.Int32
	acknowledged int           // the answer to wait; as err
	settled      chan struct{} // capacity 1: the sender has answered the command, or made the caller leave; nil: the caller sends
	err          error         // of go-redis; the caller reads it after settled
	outcome      AbandonedCommand

	mu   sync.Mutex
	done chan struct{} // closed when the command is answered or left behind; made by Done
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
	if c.settle(stateAnswered) {
		c.settled <- struct{}{}
	} else if c.isAbandoned() {
		c.outcome.End(err)
	}
}

// leave is called by a caller that has a reason to leave. If the sender has settled the command
// meanwhile, that counts.
func (c *command) leave() {
	if !c.abandon() {
		<-c.settled
	}
}

// leaveOverdue makes the caller leave, if the command has no answer by now.
func (c *command) leaveOverdue(now time.Time) {
	if !now.Before(c.leaveAt) && c.abandon() && c.settled != nil {
		c.settled <- struct{}{}
	}
}

// abandon leaves a command behind, and reports whether it did. It does not if the command was
// settled before.
func (c *command) abandon() bool { return c.settle(stateAbandoned) }

// settle ends the wait for the command, and its context with it. It reports false if the wait had
// ended before.
func (c *command) settle(state int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	settled := c.state.CompareAndSwap(stateWaiting, state)
	if settled && c.done != nil {
		close(c.done)
	}
	return settled
}

func (c *command) isWaiting() bool { return c.state.Load() == stateWaiting }

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

// wasWritten reports whether go-redis wrote the command. If not, wasWritten makes sure that Redis
// never runs it. For a command without an Abandon method, it returns true.
func wasWritten(cmd redis.Cmder) bool {
	c, ok := cmd.(interface{ Abandon() (written bool) })
	return !ok || c.Abandon()
}

// Deadline returns the deadline of the caller or the end of the attempt, whichever is earlier.
func (c *command) Deadline() (time.Time, bool) { return c.end, true }

// Done returns a channel that is closed when the context ends. go-redis seldom asks for it, so the
// channel is made when it does.
func (c *command) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if !c.isWaiting() {
			close(c.done)
		}
	}
	return c.done
}

// Err returns why the caller has left, context.Canceled after an answer, and nil before.
func (c *command) Err() error {
	switch c.state.Load() {
	case stateWaiting:
		return nil
	case stateAnswered:
		return context.Canceled
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}
