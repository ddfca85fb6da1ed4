// Package fair provides a mutex that is granted in order of arrival, across goroutines,
// processes and hosts, however long each holder keeps it.
//
// The order is not promised among requests that arrive within a round trip of each other.
// If the server loses its data, it loses the queue too. The waiters then queue again with
// their old tickets and are notified (see redlatch.WithWaitCallback).
//
// The fair mutex and the plain mutex of one name use the same key, so they exclude each
// other. A waiter of the plain mutex has no place in the queue and goes behind all
// waiters that have one. There are two exceptions. A client that holds the plain mutex
// may first hand it to its own waiters, for WithLocalHandoffTime.
// Redisson's clients do not know the queue and may get ahead of it. Their release makes the
// first waiter of each client ask.
//
// Use the fair mutex for jobs that are long enough to wait for in order. If somebody waits, a
// release runs a few more commands inside Redis than that of a plain mutex. Each waiter sends a
// heartbeat every third of its heartbeat timeout or of its lease, whichever is shorter; the
// heartbeats of one client share a command.
//
// The queue is in Redis. One sorted set orders the waiters by ticket; another stores when
// each heartbeat ends. A release grants the lock to the first live waiter and notifies
// only the client of that waiter:
//
//	Lock ── the owner has it ────────────▶ re-enter: one command
//	  │
//	  └─▶ join ── granted ───────────────▶ watchdog, hold
//	        │
//	      queued ─▶ heartbeats ── granted ▶ watchdog, hold
//	        │           │
//	        │           └─ the place is gone: join again, with the same ticket
//	        └─ ctx ends ─▶ give up the place
//
//	Unlock ─▶ stop renewal ─▶ release: the lock goes to the next
package fair
