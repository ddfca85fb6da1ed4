// Package event has the events of which a client notifies its observers, for metrics, traces and
// logs. redlatch.WithObserver adds an observer.
//
// # What is counted
//
// Each wait has one [WaitBegan] and one [WaitEnded]. Each grant that a call returned has one
// WaitEnded with [Acquired], whose Source is not [Reentry], and later one [Released] or one [Lost].
// So an observer that adds and subtracts has the number of waits and of held locks:
//
//	waiting: WaitBegan − WaitEnded
//	held:    WaitEnded (Acquired, not by Reentry) − Released − Lost
//
// After [Dropped], set the counts of its Client and Primitive to those of the event.
//
// A wait that ended by Reentry took no time, so a histogram of waits leaves it out.
//
// These counts are those of the observer, which gets its events after they happened. In the next
// line of the program, a count may still be the old one.
//
// The events of a wait have its number, Wait. So an observer knows which Queued and Woken belong to
// which WaitEnded. The number is unique in its client.
//
// Of two events that happen in two goroutines at nearly the same time, the later one may be
// observed first.
//
// # Where an observer runs
//
// Each client observes its events one after the other, in a goroutine of its own. Nothing waits for
// an observer, except Close for at most 100 ms. So an observer may get an event after the call has
// returned; Time says when it happened. Usually that is at most 10 ms late. A test in virtual time
// sleeps for that time, and then calls synctest.Wait. With redlatchtest, synctest.Wait is enough.
//
// Observers get the values of the caller's context, for example a span, where an event has a
// caller: WaitBegan, WaitEnded, Queued, Retried, Released, and Lost if a call found the loss. The
// context never ends.
//
// If an observer blocks, up to 1,000 events wait for it. The client then drops events until the
// observers have got all of those, logs that once, and says with [Dropped] how many events they
// missed.
package event
