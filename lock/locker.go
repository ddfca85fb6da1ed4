package lock

import "context"

// Locker is a lock that has holds: a mutex of either kind. Programs take a Locker to choose the
// kind in one place, and to replace the lock in tests. The methods of the implementations document
// how long they block, their errors and their cost.
//
// A fake may call the function in Do and TryDo. It cannot make a usable hold, so its HoldFrom
// returns false. For tests of code that calls Lock or needs a fence, use the module redlatchtest,
// which has a real client on an embedded server.
//
// Because programs implement Locker, it gets no further methods.
type Locker interface {
	// Name returns the name of the lock, with the client's prefix.
	Name() string
	// Lock waits until it has the lock, ctx ends, or the wait timeout of the lock is over.
	Lock(ctx context.Context) (*Hold, error)
	// TryLock acquires the lock if that needs no waiting.
	TryLock(ctx context.Context) (*Hold, error)
	// Do runs fn under the lock. It waits for the lock like Lock.
	Do(ctx context.Context, fn func(ctx context.Context) error) error
	// TryDo runs fn under the lock if that needs no waiting. It acquires the lock like TryLock.
	TryDo(ctx context.Context, fn func(ctx context.Context) error) error
	// HoldFrom returns the hold of this lock that ctx descends from, if there is one.
	HoldFrom(ctx context.Context) (*Hold, bool)
	// Inspect reads who holds the lock.
	Inspect(ctx context.Context) (Info, error)
}
