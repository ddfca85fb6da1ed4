//go:build unix

package chaos_test

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/workload"
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
	// waitedFor reports whether somebody waits for each name, and listens.
	waitedFor func(s *stand, names []string) bool
}

type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	TryLock(ctx context.Context) (*lock.Hold, error)
}

// poll is short, so that a lost wake costs a row little.
const poll = 50 * time.Millisecond

// heartbeat is longer than any fault that must not cost a place; a lost grant costs a
// third of it.
const heartbeat = 2 * time.Second

var primitives = []primitive{{
	name: "mutex",
	of: func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker {
		return c.Mutex(name, options...)
	},
	linearizable: func(ops []history.Op) error { return check.Linearizable(ops, check.ReentrantMutex()) },
	operations:   mutexOperations,
	waitedFor:    (*stand).listenedFor,
}, {
	name: "fair mutex",
	of: func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker {
		return c.FairMutex(name, options...)
	},
	linearizable: func(ops []history.Op) error { return check.Linearizable(ops, check.FairMutex()) },
	operations:   fairOperations,
	waitedFor:    (*stand).queuedFor,
}}

// actor gives an actor its lock, which tells it when it waits in a queue.
func (p primitive) actor(c *redlatch.Client, a *workload.Actor) *workload.Actor {
	a.Lock = workload.Of(p.of(c, a.Name, redlatch.WithWaitNotice(a.Waits)))
	return a
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
