package history

import (
	"sync/atomic"
	"time"
)

// Clock returns instants in nanoseconds. It may be called concurrently.
type Clock func() int64

// Since is the time since start, for one process or a bubble in virtual time. No two readings are
// equal. In a bubble most things happen at one instant. Equal stamps would mean that two calls
// happened at the same time, although one came after the other.
func Since(start time.Time) Clock {
	var last atomic.Int64
	return func() int64 {
		for {
			before := last.Load()
			now := max(time.Since(start).Nanoseconds(), before+1)
			if last.CompareAndSwap(before, now) {
				return now
			}
		}
	}
}
