package sender

import (
	"errors"
	"sync"
)

// AbandonedCommand is a command whose caller has left. It ends when go-redis returns, or when a
// worker drops it.
type AbandonedCommand struct {
	mu        sync.Mutex
	done      bool
	err       error
	callbacks []func(err error)
}

// ErrNotSent is the error of a command whose caller left before a worker took it.
var ErrNotSent = errors.New("not sent any more")

// OnEnd makes f run once when the command ends, or now if it has ended. f gets nil for an answer,
// ErrNotSent, or the error of go-redis. f must not block.
func (c *AbandonedCommand) OnEnd(f func(err error)) {
	c.mu.Lock()
	if !c.done {
		c.callbacks = append(c.callbacks, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f(c.err)
}

// End ends the command with err, and calls the callbacks.
func (c *AbandonedCommand) End(err error) {
	c.mu.Lock()
	c.done, c.err = true, err
	c.mu.Unlock()
	for _, f := range c.callbacks { // OnEnd adds no more after done
		f(err)
	}
}
