package mutex

import "time"

// Instant is a time on the monotonic clock. It takes 8 bytes, where a time.Time takes 24, because
// each held lock keeps several. The zero value is no time.
type Instant int64

var processStart = time.Now()

// Now returns the present time. It is later than the zero value even in tests whose clock is
// decades behind that of the process.
func Now() Instant { return At(time.Now()) }

// At returns t as an Instant.
func At(t time.Time) Instant { return Instant(t.Sub(processStart)) + 1<<62 }

// Age returns how long ago the instant was.
func (i Instant) Age() time.Duration { return time.Duration(Now() - i) }
