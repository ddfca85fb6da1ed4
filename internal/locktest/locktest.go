// Package locktest is the conformance suite of every lock that lets in one at a
// time: what a user may rely on, whichever of them is used. A new lock passes it
// before it has a test of its own.
//
// The suite knows nothing of scripts and keys but what [Subject] says. It does
// not sleep to let others come first: it waits until a waiter has gone to sleep
// (see waiting), and the only time limit is the one that keeps a broken lock
// from hanging the run.
package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lock"
)

// Subject is a lock under test, on one server.
type Subject struct {
	// Dial makes a go-redis client of its own. The suite closes it.
	Dial func(t testing.TB) redis.UniversalClient
	// New makes a client of the library on it. The suite closes it.
	New func(t testing.TB, rdb redis.UniversalClient, o Options) Client

	// Stays reports whether a key stays, by design, when nobody has to do with
	// the lock any more.
	Stays func(key string) bool
	// Asks is how many scripts a waiter sends before it sleeps, when the lock
	// is held by another client.
	Asks int
	// AsksBehind is the same behind another waiter of its own client.
	AsksBehind int
	// Inspect reads who has the lock; nil if the lock cannot tell.
	Inspect func(ctx context.Context, c Client, name string) (lock.Info, error)

	Anonymous      bool // it has neither fences nor one holder to name: a semaphore of one permit
	Reentrant      bool // an owner that has the lock may take it again
	OrderedLocally bool // waiters of one client are served in order of arrival
	Ordered        bool // waiters of all clients are
}

// Options are what the suite needs to choose for a client.
type Options struct {
	Lease       time.Duration
	Renewal     time.Duration // 0: follows the lease
	Poll        time.Duration
	Description string
}

// Client is the lock under test, by name.
type Client interface {
	Lock(ctx context.Context, name string) (Hold, error)
	TryLock(ctx context.Context, name string) (Hold, error)
	Do(ctx context.Context, name string, fn func(context.Context) error) error
	Close(ctx context.Context) error
}

// Hold is one successful acquire.
type Hold interface {
	Acquisition() string
	Fence() int64
	Lost() <-chan struct{}
	Context() context.Context
	Trusted() bool
	TrustedUntil() time.Time
	Unlock(ctx context.Context) error
}

// property is one promise of a lock. Its name ends a sentence that begins with
// the name of the lock.
type property struct {
	name  string
	check func(f *fixture)
}

// Run checks every property of the subject, each as a subtest of its own with a
// lock of its own.
func Run(t *testing.T, s Subject) {
	t.Helper()
	for _, group := range [][]property{
		exclusion, trying, waking, givingUp, unlocking, fencing(s), losing, doing, closing, failing, order(s), reentry(s), inspecting(s),
	} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.check(newFixture(t, s))
			})
		}
	}
}
