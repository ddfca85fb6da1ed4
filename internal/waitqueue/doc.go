// Package waitqueue waits in a queue in Redis, for the fair mutex and the semaphore. It sends the
// heartbeats of waiters, learns of their grants, and decides when a waiter asks Redis. The packages
// fair and semaphore decide what Redis grants, and with which scripts.
//
//	start ──▶ join ──▶ Queued ──▶ heartbeats, in batches, by the watchdog
//	             │        │
//	             │        ├── message "<acquisition>", or a heartbeat says "granted" ──▶ ask
//	             │        ├── the holder's lease has ended, or no heartbeat was answered
//	             │        │   in time ─────────────────────────────────────────▶ ask
//	             │        ├── a heartbeat says "gone" ──▶ join again, under a fresh id
//	             │        └── ctx, closing ────────▶ stop; the request gives up the place
//	             └── not answered for the window of the id ──▶ the same, under a fresh id
//
//	ask ──▶ granted, for the whole lease since it was sent; or no place any more;
//	        or still queued
//
// Here, "join" is Request.Join, and "ask" is Request.Claim.
//
// # A message is a hint
//
// A message grants nothing and ends nothing. It may be lost, late or doubled, and anybody who may
// publish may forge it. So the waiter asks Redis, and only the answer counts. The client trusts a
// grant from the instant before it asked.
//
// Somebody without a place in the queue may free the lock, and does not know who is first: a client
// of Redisson. Such a message goes to the channel of the lock (Spec.Channel). Of all waiters of the
// client in that queue, only the first asks.
//
// If a message is lost, the next heartbeat finds the grant. When a lost subscription is back, the
// client sends the heartbeats of all its waiters immediately, in batches. If many hints prove
// false, the waiter reacts later to the next one (pubsub.Throttle).
//
// The waiter must ask before the first lease of its grant ends. So it repeats an attempt without an
// answer after a quarter of the heartbeat timeout, or of the lease if that is shorter
// (session.Operation.Share). If the attempt timeout is even shorter, it repeats the attempt after
// that.
//
// A heartbeat does not take a grant over. If the user's wait callback blocks, the heartbeats of the
// waiter go on. A grant that comes meanwhile still ends with its first lease.
//
// # One id, one place
//
// The grant or place that a join got ends after a lease or a heartbeat timeout if nobody renews it.
// So the request sends a join again under its id only within that time (session.Operation.Window).
// Then it gives the id up and joins under a fresh one, with its ticket.
package waitqueue
