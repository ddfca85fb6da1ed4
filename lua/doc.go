// Package lua has the scripts that change locks in Redis, and one typed Go
// function for each: the only code that knows their KEYS and ARGV, and the only
// code that sends scripts.
//
// A function sends its script once and returns the result. It never decides whether to send it
// again: every script may run twice, but only the caller knows whether it still needs the result.
// [Classify] says what an error leaves open.
//
// A script never uses a key that it may have removed before. While a slot of a cluster migrates,
// the node that gives the slot away refuses that, in the middle of the script.
//
// The scripts trust no client clock. A command that asks for a grant carries a void-after time in
// server time, which the client computes from earlier replies. After that time, the command changes
// nothing. So a command that was delayed on its way cannot take a lock that nobody waits for any
// more.
package lua

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is what the scripts need of a client: any redis.UniversalClient has it.
type Redis interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Time is a reading of the server's clock in microseconds since 1970.
type Time int64

// Add returns the reading d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Microseconds()) }

// UnixMilli returns the reading in the unit of expiry times.
func (t Time) UnixMilli() int64 { return int64(t) / 1000 }
