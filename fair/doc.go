// Package fair has the mutex that is given in order of arrival: across
// goroutines, processes and hosts, and however long the holders take.
//
// It does not promise an order among those who come within a round trip of each
// other; and where the server loses its data, the queue goes too: those who wait
// queue again, with the tickets that they had, and are told so.
//
// It guards the same key as the re-entrant mutex of the name, and excludes it; but
// who waits there has no place in the queue. It is for jobs that are long enough
// to wait for in order: a release costs a few commands more inside of Redis, and
// each waiter a share in a command every third of its heartbeat.
//
// The queue stands in Redis: a sorted set of waiters by ticket, and one of when
// their heartbeats end. A release gives the lock to the first that lives, and tells
// its client, and nobody else:
//
//	Lock ── the owner has it ────────────▶ re-enter: one command
//	  │
//	  └─▶ join ── granted ───────────────▶ watchdog, hold
//	        │
//	      queued ─▶ heartbeats ── granted ▶ watchdog, hold
//	        │           │
//	        │           └─ the place is gone: join again, with the same ticket
//	        └─ ctx ends ─▶ leave
//
//	Unlock ─▶ stop renewal ─▶ leave: the lock goes to the next
package fair
