// Package queue waits in a queue that is stored in Redis, for the fair mutex and the semaphore. It
// knows how a waiter shows that it is alive, how it learns of its grant, and when it has to ask.
// Its users decide what is granted, and by which scripts.
//
//	add   ──▶ join ──▶ Queued ──▶ heartbeats, in batches, by the watchdog
//	             │        │
//	             │        ├── message "<acquisition>", or a heartbeat says "granted" ──▶ ask
//	             │        ├── the holder's lease has ended, or no heartbeat was answered
//	             │        │   in time ─────────────────────────────────────────▶ ask
//	             │        ├── a heartbeat says "gone" ──▶ join again, under a fresh id
//	             │        └── ctx, closing ────────▶ leave; the request gives up the place
//	             └── not answered for the window of the id ──▶ the same, under a fresh id
//
//	ask ──▶ granted, for the whole lease from its sending on; or no place any more;
//	        or still queued
//
// # A message is a hint
//
// A message grants nothing and ends nothing. It may be lost, late or doubled, and anybody who may
// publish may forge it. So the waiter asks Redis, and only the answer counts. The client trusts a
// grant from the moment before it asked. A lost message costs one heartbeat at most. After a lost
// subscription is back, the client sends the heartbeats of all its waiters immediately, in batches.
// If many hints prove false, the waiter reacts later to the next one (wake.Throttle).
//
// The waiter repeats an unanswered attempt to ask after a quarter of the heartbeat, or of the lease
// if that is shorter (session.Operation.Share). The grant that it is to take over ends when the
// rest of that time is over.
//
// A heartbeat does not take a grant over. If the user's wait callback blocks, the heartbeats of the
// waiter go on. A grant that comes meanwhile still ends with its first lease.
//
// # One id, one place
//
// The grant or place that a join got ends after a lease or a heartbeat if nobody keeps it. So the
// request sends a join again under its id only within that time (session.Operation.Window). Then it
// gives the id up and joins under a fresh one, with its ticket.
package queue
