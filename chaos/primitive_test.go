//go:build unix

package chaos_test

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/lock"
)

// primitive is a lock as the rows see it.
type primitive struct {
	name string
	of   func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker
	// linearizable judges a history in which nothing expires.
	linearizable func(ops []history.Op) error
	// operations are its commands and how to provoke them, for replies that are cut.
	operations []operation
}

type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	TryLock(ctx context.Context) (*lock.Hold, error)
}

// poll is short, so that a lost wake costs a row little.
const poll = 50 * time.Millisecond

var primitives = []primitive{
	{name: "mutex", of: func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker {
		return c.Mutex(name, options...)
	}, operations: mutexOperations, linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.ReentrantMutex())
	}},
}

// rows are all rows of a primitive.
func (p primitive) rows() []row {
	return slices.Concat(
		p.historyRows(),
		p.expiryRows(),
		p.fenceRows(),
		p.processRows(),
		p.replyRows(),
		p.lossRows(),
		p.recoveryRows(),
		p.cancelRows(),
		p.leftoverRows(),
	)
}
