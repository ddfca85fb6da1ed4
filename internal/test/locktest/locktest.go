// Package locktest is the conformance suite of every lock that has one holder at a time. It checks
// what a user may rely on, whichever lock it is. A new lock passes it before it has tests of its
// own.
//
// The suite knows nothing of scripts and keys except what [Subject] says. It does not sleep to let
// others come first. Instead, it waits until a waiter has gone to sleep (see waiting). The only
// time limit keeps a broken lock from blocking the run.
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
	// Dial makes a separate go-redis client. The suite closes it.
	Dial func(t testing.TB) redis.UniversalClient
	// New makes a client of the library on the go-redis client. The suite closes it.
	New func(t testing.TB, rdb redis.UniversalClient, o Options) Client

	// Stays reports whether Redis keeps a key by design when nobody uses the lock any more.
	Stays func(key string) bool
	// Asks is how many scripts a waiter sends before it sleeps, if another client holds the lock.
	Asks int
	// AsksBehind is the number behind another waiter of the same client.
	AsksBehind int
	// FurtherScripts is how many more scripts than one a grant takes.
	FurtherScripts int
	// Inspect reads who has the lock. It is nil if the lock cannot say.
	Inspect func(ctx context.Context, c Client, name string) (lock.Info, error)

	Anonymous      bool // it has neither fences nor one holder with a name: a semaphore of one permit
	Reentrant      bool // an owner that has the lock may take it again
	OrderedLocally bool // waiters of one client are served in order of arrival
	Ordered        bool // waiters of all clients are served in order of arrival
}

// Options are the options that the suite sets for a client.
type Options struct {
	Lease       time.Duration
	Renewal     time.Duration // 0: follows the lease
	Poll        time.Duration
	WaitTimeout time.Duration // 0: none
	Description string
}

// Client is a client with the lock under test, by name.
type Client interface {
	Lock(ctx context.Context, name string) (Hold, error)
	TryLock(ctx context.Context, name string) (Hold, error)
	Do(ctx context.Context, name string, fn func(context.Context) error) error
	TryDo(ctx context.Context, name string, fn func(context.Context) error) error
	Close(ctx context.Context) error
}

// Hold is one successful acquire.
type Hold interface {
	ID() string
	Fence() int64
	Lost() <-chan struct{}
	Context() context.Context
	Trusted() bool
	TrustedUntil() time.Time
	Unlock(ctx context.Context) error
}

// property is one promise of a lock. Its name ends a sentence that begins with the name of the
// lock.
type property struct {
	name  string
	check func(f *fixture)
}

// Run checks every property of the subject, each in a subtest of its own with a lock of its own.
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
