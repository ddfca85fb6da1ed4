package lock

import "time"

// Info is the state of a lock at one moment, for people and dashboards. It is no
// ground for a program to act on: it may be history when it arrives.
type Info struct {
	Name        string
	Holder      string        // the acquisition that has it, <client id>:<n>; empty: free
	Description string        // what the holder says of itself
	Holds       int           // how often it has been entered
	Remaining   time.Duration // of the lease; negative when it has no end
	Fence       int64         // the last one given out; 0: none is known
	// Since is about when the holder got it, on the server's clock: fences are
	// made from that clock. Zero when free, or when the fence is not from it
	// (Redisson counts from one).
	Since time.Time
}

// Held reports whether somebody had the lock.
func (i *Info) Held() bool { return i.Holder != "" }
