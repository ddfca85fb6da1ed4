package session

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// serverClock guesses the server's clock from its last reply and the local monotonic clock. The
// guess is late by up to one round trip, and never early. So a void-after time that is built on it
// comes too early rather than too late.
//
// Before the first reply, the guess is far in the past. The first attempt of a client is therefore
// void when it arrives. Redis answers with the time, and the client sends the command again. That
// costs one round trip, once, and no separate command for the time.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // server µs minus local µs since start
}

func (c *serverClock) set(now lua.Time) {
	c.offset.Store(int64(now) - time.Since(c.start).Microseconds())
}

// isKnown reports whether the server, or another one, has replied.
func (c *serverClock) isKnown() bool { return c.offset.Load() != 0 }

func (c *serverClock) now() lua.Time {
	return lua.Time(time.Since(c.start).Microseconds() + c.offset.Load())
}

// until returns how long it takes until the server's clock has passed t. The guess of that clock is late, so
// when the guess has passed t, the clock has too.
func (c *serverClock) until(t lua.Time) time.Duration {
	const slack = 5 * time.Millisecond
	d := time.Duration(t-c.now())*time.Microsecond + slack
	return min(max(d, 0), maxInFlight)
}

// maxInFlight bounds what until returns. The guess is wrong if somebody set the server's clock.
const maxInFlight = 2 * time.Minute
