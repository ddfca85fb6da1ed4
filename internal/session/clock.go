package session

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// serverClock guesses the server's clock from its last reply and the local
// monotonic clock. The guess is late by up to one round trip, never early, so
// ends built on it come too soon rather than too late.
//
// Before the first reply it is far in the past: the first grant of a client
// comes back void, with the time, and is sent again. That costs one round trip
// once, and no other command to learn the time.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // server µs minus local µs since start
}

func (c *serverClock) learn(now lua.Time) {
	c.offset.Store(int64(now) - time.Since(c.start).Microseconds())
}

func (c *serverClock) now() lua.Time {
	return lua.Time(time.Since(c.start).Microseconds() + c.offset.Load())
}
