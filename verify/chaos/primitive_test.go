//go:build unix

package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lock"
)

// primitive is a lock as the rows see it.
type primitive struct {
	name string
	of   func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker
	// linearizable judges a history in which nothing expires.
	linearizable func(ops []history.Op) error
	// whileLeasesEnd judges a history in which the end of a hold is an operation, and waiters may
	// lose their places in queues.
	whileLeasesEnd func(ops []history.Op) error
	permits        func(c *redlatch.Client, name string, options ...redlatch.LockOption) workload.Lock // used instead of of
	// operations are its commands and how to provoke them, for lost replies.
	operations []operation
	// waitedFor reports whether somebody waits for each name, and listens.
	waitedFor func(s *stand, names []string) bool
}

// lock returns the whole primitive as a lock, so that nobody else can have any part of it. If it
// has units, actors may take some of them.
func (p primitive) lock(c *redlatch.Client, name string, options ...redlatch.LockOption) workload.Lock {
	if p.permits != nil {
		return p.permits(c, name, options...)
	}
	return workload.Of(p.of(c, name, options...))
}

func (p primitive) fenced() bool { return p.permits == nil }

// units is the number of units, which is 1 for a mutex.
func (p primitive) units() int {
	if p.permits != nil {
		return permitLimit
	}
	return 1
}

// some is a part of the units. It is 0 for a mutex, which has none.
func (p primitive) some() int {
	if p.permits != nil {
		return 1 + rand.N(permitLimit)
	}
	return 0
}

// key is the key that the test deletes to make a holder lose its hold.
func (p primitive) key(name string) string {
	if p.permits != nil {
		return key.ForSemaphore(name).Permits
	}
	return name
}

type locker interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	TryLock(ctx context.Context) (*lock.Hold, error)
	Attach(ctx context.Context, text string) (*lock.Hold, error)
}

// poll is short, so that a lost wake-up costs a row little.
const poll = 50 * time.Millisecond

// heartbeat is longer than any fault that must not cost a place. A lost grant costs a third of it.
const heartbeat = 2 * time.Second

var primitives = []primitive{{
	name: "mutex",
	of: func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker {
		return c.Mutex(name, options...)
	},
	linearizable:   func(ops []history.Op) error { return check.Linearizable(ops, check.ReentrantMutex()) },
	whileLeasesEnd: func(ops []history.Op) error { return check.Linearizable(ops, check.ReentrantMutex()) },
	operations:     mutexOperations,
	waitedFor:      (*stand).listenedFor,
}, {
	name: "fair mutex",
	of: func(c *redlatch.Client, name string, options ...redlatch.LockOption) locker {
		return c.FairMutex(name, options...)
	},
	linearizable:   func(ops []history.Op) error { return check.Linearizable(ops, check.FairMutex()) },
	whileLeasesEnd: func(ops []history.Op) error { return check.Linearizable(check.Grants(ops), check.ReentrantMutex()) },
	operations:     fairOperations,
	waitedFor:      (*stand).queuedFor,
}, permits}

// actor gives an actor its lock, which notifies the actor when it waits in a queue.
func (p primitive) actor(c *redlatch.Client, a *workload.Actor) *workload.Actor {
	a.Lock = p.lock(c, a.Name, redlatch.WithWaitCallback(a.Waits))
	return a
}

// rows returns all rows of a primitive.
func (p primitive) rows() []row {
	if !p.fenced() {
		return p.permitRows()
	}
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
		p.clusterRows(),
	)
}
