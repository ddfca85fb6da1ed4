package lock

import "time"

// Info is the state of a lock at one moment, for people and dashboards. It is no
// ground for a program to act on: it may be history when it arrives.
type Info struct {
	Name        string
	Holder      string        // the acquisition that has it, <client id>:<n>; empty: free
	Description string        // what the holder says of itself
	Holds       int           // how often it has been entered
	Remaining   time.Duration // of the lease; negative when it has no end, 0 when nobody has it
	Fence       int64         // the last one given out; 0: none is known
	// Since is about when the holder got it, on the server's clock: fences are
	// made from that clock. Zero when free, or when the fence is not from it
	// (Redisson counts from one).
	Since time.Time
}

// Held reports whether somebody had the lock.
func (i *Info) Held() bool { return i.Holder != "" }

// Waiting is how a wait in a queue stands. By the time it is read it may be
// history.
type Waiting struct {
	Name        string        // the lock
	Position    int           // 1 is next
	Length      int           // of the queue, those that died and were not dropped yet included
	Holder      string        // the acquisition that has the lock; empty while dead waiters are being dropped
	Description string        // what the holder says of itself
	Since       time.Time     // about when the holder got it, by the server's clock; zero if that is not known
	Remaining   time.Duration // of the holder's lease, which is renewed while it lives; negative when it has no end
	// Again says that the place was lost, because the server lost its data or did
	// not hear of this process for a heartbeat, and that the lock is queued for
	// again, with the old ticket.
	Again bool
}

// Waiter is one that waits in a queue, as it was seen.
type Waiter struct {
	Acquisition string        // which it will become when it is granted
	Units       int           // that it wants of a semaphore; 1 of a mutex
	Description string        // what it says of itself
	Since       time.Time     // about when it came, by the server's clock
	Heartbeat   time.Duration // how long it is taken for living without a sign of it
	Left        time.Duration // of its heartbeat; zero: it counts as dead
}
