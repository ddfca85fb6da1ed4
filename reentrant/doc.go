// Package reentrant has the plain mutex of redlatch: a lock with one owner at a time, who may
// acquire it again.
//
// The context decides whether Lock re-enters: it does if the context descends from a hold of the
// lock. Goroutines that were started under a lock, with the context of its hold, may all re-enter
// that lock at the same time. They exclude each other from every other lock. The page docs/usage.md
// has the whole rule.
//
// The mutex does not promise an order among waiters of different processes. Like every lock
// service, it cannot stop a paused process from acting after its lease; see package lock for what a
// hold promises.
//
// The fair mutex may use the same name. Its waiters go first: a Lock of the plain mutex that finds
// the lock free gives it to the first waiter of that queue, as an Unlock does, and waits behind the
// queue. Behind a queue that is never empty, it may wait for ever. If all waiters in the queue have
// crashed, they delay a plain waiter by two heartbeat timeouts at most after it next asks Redis. It
// asks once each poll bound.
//
// Redis is the authority for who holds the lock and until when. It stores a hash under the name of
// the lock, with the lease as its TTL. One field of the hash is the acquisition, another is the
// description of the holder. The client is the authority for how many holds its acquisition has,
// and which owner it belongs to. Local time is used for one thing only: to stop trusting a lease
// before it can have ended.
//
// Of the goroutines of one client that wait for a lock, only the one that has the local lock may
// ask Redis. One lock, step by step:
//
//	Lock ── the context descends from a hold of it ────▶ re-enter: one command
//	  │
//	  ├── the client has no other request for it ──────▶ the local lock
//	  └── somebody here has the local lock ─▶ queue ─▶ the local lock, or the lock itself
//
//	local lock ─▶ ask Redis ── granted ─────────────────▶ watchdog, hold
//	           │  ▲
//	        refused └─ wake-up, poll, end of the holder's lease
//
//	Unlock ─▶ stop renewal ─▶ somebody here waits: handoff, one command, the
//	          lock and the local lock are theirs; else, or after WithLocalHandoffTime:
//	          release, notify waiters everywhere, or give the lock to the queue of
//	          the fair mutex, pass the local lock
package reentrant
