package lock

import (
	"time"

	"github.com/redlatch/redlatch/internal/keptid"
)

// Info is the state of a lock at one moment, for people and dashboards. A program must not act on
// it: it may be out of date when it arrives.
type Info struct {
	Name        string
	Holder      string        // the acquisition that holds it, <client id>:<n>; empty if free
	Description string        // the description of the holder
	Holds       int           // how many holds the owner has
	Remaining   time.Duration // of the lease; negative if it has no end, 0 if nobody holds the lock
	Fence       int64         // the last one given out; 0 if none is known
	// Since is about when the holder got the lock, by the server's clock. Fences are made from
	// that clock. Since is zero if the lock is free, or if the fence is not from that clock
	// (Redisson counts from one).
	Since time.Time
}

// IsKept reports whether nobody held the lock, and Redis kept it after an UnlockAfter or an Export.
// Held is true then too. Holder is the id under which Redis keeps the lock, and Description is that
// of the last holder.
func (i *Info) IsKept() bool { return keptid.Is(i.Holder) }

// Held reports whether someone held the lock.
func (i *Info) Held() bool { return i.Holder != "" }

// Waiting is the state of a wait in a queue. It may be out of date when it is read.
type Waiting struct {
	Name        string        // the lock
	ID          string        // of this waiter, as Waiter.ID and RemoveWaiter have it; another one if Requeued
	Position    int           // 1 is next
	Length      int           // of the queue; includes expired waiters that were not dropped yet
	Holder      string        // the acquisition that holds the lock; empty while expired waiters are being dropped
	Description string        // the description of the holder
	Since       time.Time     // about when the holder got the lock, by the server's clock; zero if that is not known
	Remaining   time.Duration // of the holder's lease, which is renewed while it lives; negative if it has no end
	// Requeued says that the waiter lost its place and queues again, with the old ticket. The
	// server lost its data, or received no heartbeat from this process for the time of a heartbeat.
	Requeued bool
}

// Waiter is one waiter in a queue, as Redis showed it.
type Waiter struct {
	ID            string        // the acquisition that it becomes when it is granted
	Units         int           // requested of a semaphore; 1 for a mutex
	Description   string        // the description of the waiter
	Since         time.Time     // about when it came, by the server's clock
	Heartbeat     time.Duration // how long it counts as alive after its last heartbeat
	HeartbeatLeft time.Duration // until its heartbeat ends; zero: it counts as dead
}
