package session

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// serverClock guesses the server's clock from its last reply and the local monotonic clock. The two
// clocks may differ in speed by a thousandth, so the guess gives away that part of the time since
// the reply. It is late by up to one round trip and two thousandths of that time, and never early.
// So a void-after time that is built on it comes too early rather than too late.
//
// Before the first reply, the guess is far in the past. The first attempt to a server is therefore
// void when it arrives. Redis answers with the time, and the client sends the command again. That
// costs one round trip for each server, once, and no separate command for the time.
type serverClock struct {
	start  time.Time
	offset atomic.Int64 // server µs minus local µs since start
	setAt  atomic.Int64 // local µs since start, at the last reply
}

// maxDrift is the part by which the speed of two clocks may differ; see docs/guarantees.md.
const maxDrift = 1. / 1000

func (c *serverClock) begin() {
	c.start = time.Now()
	c.setAt.Store(-freshFor.Microseconds())
}

func (c *serverClock) set(now lua.Time) {
	local := time.Since(c.start).Microseconds()
	c.offset.Store(int64(now) - local)
	c.setAt.Store(local) // after offset, so that a reader between the two gives away too much
}

func (c *serverClock) now() lua.Time {
	local := time.Since(c.start).Microseconds()
	drift := int64(maxDrift * float64(local-c.setAt.Load()))
	return lua.Time(local - drift + c.offset.Load())
}

// isKnown reports whether the server has replied.
func (c *serverClock) isKnown() bool { return c.setAt.Load() >= 0 }

// isFresh reports whether that reply is so young that a direct attempt, which is valid for 20 ms
// only, is not void when it arrives.
func (c *serverClock) isFresh() bool {
	return time.Since(c.start).Microseconds()-c.setAt.Load() < freshFor.Microseconds()
}

// freshFor is how long that is. The guess then gives away five milliseconds.
const freshFor = 5 * time.Second

// until returns how long it takes until the server's clock has passed t. The guess of that clock is
// late, so when the guess has passed t, the clock has too.
func (c *serverClock) until(t lua.Time) time.Duration {
	const slack = 5 * time.Millisecond
	d := time.Duration(t-c.now()) * time.Microsecond
	d += time.Duration(2*maxDrift*float64(d)) + slack
	return min(max(d, 0), maxInFlight)
}

// maxInFlight bounds what until returns. The guess is wrong if somebody set the server's clock.
const maxInFlight = 2 * time.Minute
