package session

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// serverClock guesses the server's clock from its last reply and the local monotonic clock. The
// guess is late by up to one round trip, and never early. So ends that are built on it come too
// soon rather than too late.
//
// Before the first reply, the guess is far in the past. The first request of a client for a grant
// therefore comes back void, with the time, and is sent again. That costs one round trip, once, and
// no separate command to learn the time.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // server µs minus local µs since start
}

func (c *serverClock) set(now lua.Time) {
	c.offset.Store(int64(now) - time.Since(c.start).Microseconds())
}

func (c *serverClock) now() lua.Time {
	return lua.Time(time.Since(c.start).Microseconds() + c.offset.Load())
}
