// Package queue is the waiting in a queue that stands in Redis: for the fair
// mutex and the semaphore. It knows how a waiter shows that it lives, how it
// learns that it was granted, and when it has to ask; what is granted, and by
// which scripts, is its users' business.
//
//	enter ──▶ join ──▶ Queued ──▶ beats, in batches, by the watchdog
//	                      │
//	                      ├── message "<acquisition> <fence>" ─▶ granted, with what is left of the heartbeat
//	                      ├── a beat's answer ─────────────────▶ granted, with the whole lease; or no place any more
//	                      ├── the holder's lease has ended, or no beat was answered
//	                      │   for a heartbeat ───────────────▶ ask, and see
//	                      └── ctx, closing ────────────────────▶ leave; the contender gives up the place in Redis
//
// # Why a message may carry the grant
//
// The last beat that was answered "queued" was sent at S. It was answered so, and
// therefore the grant came after it; and the server keeps the lock until the
// waiter's heartbeat would have ended, which is S + heartbeat at least. So the
// waiter has the lock from the moment it hears of it, without another question,
// and may trust it until S + heartbeat − margin: what is then left of its
// heartbeat is the first lease. It is renewed when a tenth of that has passed: work
// of a moment then costs no renewal. Where little of it is left, the waiter asks
// before it begins.
//
// A message may be lost: the next beat brings the grant. It may be late or
// doubled: ids are never used twice, so nobody waits under that one any more.
package queue
