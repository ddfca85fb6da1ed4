// Package reentrant has the mutex of redlatch: a lock with one owner at a time,
// who may take it again.
//
// The context decides whether a lock is taken again: it is where the context descends
// from a hold of the lock. Goroutines that were started under a lock with the context of
// its hold may all take that lock again, at the same time; they exclude each other from
// every other lock.
//
// It does not promise an order among waiters of different processes, and like
// every lock service it cannot stop a paused process from acting after its
// lease; see package lock for what a hold is worth.
//
// A name may be used by the fair mutex too. Whoever waits there goes first: a Lock that
// finds the lock free gives it to the first of that queue, as an Unlock does, and waits
// behind. Behind a queue that is never empty it may wait for ever. Waiters that have all
// died hold it up for two heartbeats at most from its next question on, which comes once
// each poll bound.
//
// Redis is the authority for who has the lock and until when: a hash under the
// lock's name, whose one field is the acquisition, with the lease as its TTL. The
// client is the authority for how many holds its acquisition has, and which
// owner it belongs to. Local time is used for one thing only: to stop trusting
// a lease before it can have ended.
//
// One lock, step by step:
//
//	Lock ── the context descends from a hold of it ────▶ re-enter: one command
//	  │
//	  ├── the client has no other business with it ────▶ the turn
//	  └── somebody here has the turn ─▶ queue ─▶ the turn, or the lock itself
//
//	turn ─▶ ask Redis ── granted ─────────────────────▶ watchdog, hold
//	           │  ▲
//	        refused └─ wake, poll, end of the holder's lease
//
//	Unlock ─▶ stop renewal ─▶ somebody here waits: transfer, one command, the
//	          lock and the turn are theirs; else, or after some turns in a row:
//	          release, tell waiters everywhere, or give the lock to the queue of
//	          the fair mutex, pass the turn
package reentrant
