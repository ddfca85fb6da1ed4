package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// These are the types that programs name in their structs and functions, so that this import is
// enough. Each is an alias, and go doc shows its methods only under its own name, for instance with
// go doc github.com/redlatch/redlatch/lock.Hold.
type (
	// Mutex is what [Client.Mutex] returns. [reentrant.Mutex] documents its methods: Lock, TryLock,
	// Do, TryDo, Attach, HoldFrom, Inspect, ForceRelease and Name.
	Mutex = reentrant.Mutex
	// FairMutex is what [Client.FairMutex] returns. [fair.Mutex] documents its methods: Lock,
	// TryLock, Do, TryDo, Attach, HoldFrom, Inspect, Queue, RemoveWaiter, ForceRelease and Name.
	FairMutex = fair.Mutex
	// Semaphore is what [Client.Semaphore] returns. [semaphore.Semaphore] documents its methods:
	// Acquire, TryAcquire, Do, TryDo, PermitFrom, Resize, Inspect, Queue, RemoveWaiter,
	// ForceRelease and Name.
	Semaphore = semaphore.Semaphore
	// Hold is one successful acquire of a mutex. [lock.Hold] documents its methods: Unlock,
	// UnlockAfter, Export, Context, Bind, Lost, Trusted, TrustedUntil, Fence, ReportProgress, ID
	// and Name.
	Hold = lock.Hold
	// Permit is some units of a semaphore. [semaphore.Permit] documents its methods: Release,
	// ReleaseAfter, Context, Bind, Lost, Trusted, TrustedUntil, Units, ReportProgress, ID and Name.
	Permit = semaphore.Permit
	// Locker is the interface of mutexes of both kinds. [lock.Locker] documents its methods: Lock,
	// TryLock, Do, TryDo, HoldFrom, Inspect and Name.
	Locker = lock.Locker
	// Waiting is what [WithWaitCallback] says of a wait. [lock.Waiting] documents its fields.
	Waiting = lock.Waiting
	// Observer is what [WithObserver] adds. [event.Observer] documents its method Observe, and
	// [event.Func] makes one of a function.
	Observer = event.Observer
	// Event is what an observer is notified of. [event.Event] documents its fields.
	Event = event.Event
)

// HoldFromContext returns the hold that ctx descends from, for instance for its fence inside of Do.
// Inside of nested locks it is the innermost hold, of whichever lock. HoldFrom of a mutex returns
// the hold of that lock. HoldFromContext is [lock.FromContext].
func HoldFromContext(ctx context.Context) (*Hold, bool) { return lock.FromContext(ctx) }

// WithWaitDeadline returns a context with which no call waits for a lock after t: one limit for all
// locks of a request. The context itself does not end at t, so the work goes on. WithWaitDeadline
// is [lock.WithWaitDeadline], which documents it.
func WithWaitDeadline(ctx context.Context, t time.Time) context.Context {
	return lock.WithWaitDeadline(ctx, t)
}
