// Package queue is the waiting in a queue that stands in Redis: for the fair
// mutex and the semaphore. It knows how a waiter shows that it lives, how it
// learns that it was granted, and when it has to ask; what is granted, and by
// which scripts, is its users' business.
//
//	enter ──▶ join ──▶ Queued ──▶ beats, in batches, by the watchdog
//	             │        │
//	             │        ├── message "<acquisition>", or a beat says "granted" ──▶ ask
//	             │        ├── the holder's lease has ended, or no beat was answered
//	             │        │   for a heartbeat ─────────────────────────────────▶ ask
//	             │        ├── a beat says "gone" ──▶ join again, under a fresh id
//	             │        └── ctx, closing ────────▶ leave; the contender gives up the place
//	             └── not answered for the window of the id ──▶ the same, under a fresh id
//
//	ask ──▶ granted, with the whole lease from the question on; or no place any more;
//	        or still queued
//
// # A message is a hint
//
// A message grants nothing and ends nothing. It may be lost, late or doubled, and
// anybody who may publish may forge it. So the waiter asks Redis, and only the
// answer counts: the client trusts the grant from before it sent the question. A lost
// message costs a beat at most. When the subscription was lost and is back, all waiters
// of the client beat at once, in batches. When many hints prove false, the waiter heeds the next
// one later (wake.Flood).
//
// A question that goes unanswered is sent again after a quarter of the heartbeat, or of a
// shorter lease (session.Call.Share): the grant that it is to take over ends with the
// rest of them.
//
// A beat takes no grant over. A waiter whose user's notice blocks goes on beating,
// and what it was granted meanwhile still ends with its first lease.
//
// # One id, one place
//
// What a join got ends after a heartbeat or a lease if nobody keeps it. So a join is
// sent again under its id only within that time (session.Call.Window); then the
// contender gives the id up and joins under a fresh one, with its ticket.
package queue
