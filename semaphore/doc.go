// Package semaphore limits how much is done at once across hosts: at most limit
// units of permits live at any time. Every permit has an id, a lease, and the
// watchdog; those of a worker that crashed come back by themselves, with the end
// of their lease.
//
// A permit does not make it certain that no more than limit units of work are under
// way: a worker that is paused beyond its lease goes on where it stood, and Redis
// may forget permits at a failover. While permits are trusted, they are within the
// limit, and a loss is told before trust ends. There is no fence: holders have no
// order among them, so that no number could name the newest.
//
// Requests are served in the order of their arrival at the server, across
// processes: one for many units waits until so many are free, and those behind it
// wait with it, so that it is not starved by small ones. That costs throughput
// where sizes differ much: units stay free while the first needs more. TryAcquire
// does not overtake waiters either.
//
// The limit is kept in Redis, set by the first that uses the semaphore, and changed
// by Resize. A program that says another one gets a *lockerr.LimitError that names
// both. Redis forgets it some days after the last grant, renewal or Resize
// (redlatch.WithFenceRetention), and never before a permit has ended, or with the data
// of the server. A Release does not count as a use.
//
// In Redis, a permit is a few entries of one sorted set, whose scores are the ends
// of the lease: what is in use is counted from them, by the server's clock, and from
// nothing else. Who waits stands in a queue as that of a fair mutex does.
//
//	Acquire ─▶ acquire ── granted ────────────────▶ watchdog, permit
//	              │
//	            queued ─▶ heartbeats ── granted ──▶ watchdog, permit
//	              │           │
//	              │           └─ the place is gone: acquire again, with the same ticket
//	              └─ ctx ends ─▶ release
//
//	Release ─▶ stop renewal ─▶ release: the units go to the next that fit
package semaphore
