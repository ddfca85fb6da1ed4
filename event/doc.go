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
// Of two events that happen in two goroutines at nearly the same time, the later one may be
// observed first.
//
// # Where an observer runs
//
// An event of a wait or a hold is observed in the goroutine where it happens. That is usually the
// one of the caller, whose Lock or Unlock returns after its observers. The events Woken, Renewed,
// Retried, Leaked, LateGrant and Disconnected are observed one after the other in another goroutine.
// So a slow observer delays the calls whose events it observes, and nothing else: the library has
// none of its mutexes locked, and renews and wakes as always. If an observer blocks, up to 1,000
// events of that other goroutine wait. The client drops further ones, and logs that once.
package event
