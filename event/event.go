package event

import "time"

// Event is one fact about a wait, a hold or the connection of a client. The kind says which fields
// are set beside Kind, Time and Client. The others are zero.
type Event struct {
	Kind      Kind
	Time      time.Time     // when it happened; observers may get it later
	Client    string        // the id of the client; the ids of its acquisitions begin with it
	Primitive Primitive     // what the lock is; 0 for an event of several locks, or of none
	Try       bool          // the wait is that of TryLock, TryAcquire, TryDo or Attach
	Result    Result        // one word that says how it went, for a label
	Source    Source        // of a wait that ended with Acquired
	Name      string        // the lock or semaphore; there may be too many for a label
	Wait      uint64        // which wait of the client, from 1; all events of one wait have the same number
	ID        string        // the acquisition, <client id>:<n>
	Fence     int64         // of the grant; 0 for a semaphore
	Units     int           // of a semaphore; 1 for a mutex
	Duration  time.Duration // how long it took
	Position  int           // in the queue, where 1 is next
	Length    int           // of the queue
	Count     int           // of leases, or of dropped events
	Waiting   int           // waits that have not ended
	Held      int           // grants that have not ended
	Err       error         // why it failed
}
