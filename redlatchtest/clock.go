package redlatchtest

import (
	"sync"
	"time"
)

// clock is the clock of the server. It is the clock of the program until somebody moves it ahead.
type clock struct {
	server interface{ SetTime(time.Time) }

	mu    sync.Mutex // so that the server's clock never goes back
	ahead time.Duration
}

// advance moves the clock ahead by d.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	c.ahead += d
	c.mu.Unlock()
	c.set()
}

// set sets the server's clock. On miniredis, a clock that was set stands still. So it is set again
// before each command.
func (c *clock) set() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead > 0 {
		c.server.SetTime(time.Now().Add(c.ahead))
	}
}
