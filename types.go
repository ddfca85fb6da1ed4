package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// These are the types that programs name in their structs and functions, so that this import is
// enough. Their packages document their methods.
type (
	// Mutex is what [Client.Mutex] returns.
	Mutex = reentrant.Mutex
	// FairMutex is what [Client.FairMutex] returns.
	FairMutex = fair.Mutex
	// Semaphore is what [Client.Semaphore] returns.
	Semaphore = semaphore.Semaphore
	// Hold is one successful acquire of a mutex.
	Hold = lock.Hold
	// Permit is some units of a semaphore.
	Permit = semaphore.Permit
	// Locker is the interface of mutexes of both kinds.
	Locker = lock.Locker
	// Waiting is what [WithWaitCallback] says of a wait.
	Waiting = lock.Waiting
	// Observer is what [WithObserver] adds.
	Observer = event.Observer
	// Event is what an observer is notified of.
	Event = event.Event
)

// HoldFromContext returns the hold that ctx descends from, for instance for its fence inside of Do.
// Inside of nested locks it is the innermost hold, of whichever lock. HoldFrom of a mutex returns the hold
// of that lock. HoldFromContext is [lock.FromContext].
func HoldFromContext(ctx context.Context) (*Hold, bool) { return lock.FromContext(ctx) }
