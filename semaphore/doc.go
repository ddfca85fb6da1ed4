// Package semaphore limits how much work runs at once across hosts: at most limit units of permits
// are live at any time. Every permit has an id, and a lease that the watchdog renews. If a worker
// crashes, its permits become free when their lease ends.
//
// While permits are trusted, they are within the limit. The client notifies a holder of a loss
// before trust ends. A permit does not guarantee that at most limit units of work are running. A
// worker that is paused beyond its lease goes on where it stopped, and Redis may forget permits at
// a failover. There is no fence: holders have no order among them, so no number could name the
// newest.
//
// Requests are served in the order of their arrival at the server, across processes. A request for
// many units waits until so many are free, and the requests behind it wait too. So small requests
// do not starve it. If requests differ much in size, this costs throughput: units stay free while
// the first request needs more. TryAcquire does not overtake waiters either.
//
// The limit is in Redis. The first program that uses the semaphore sets it, and Resize changes it.
// After a Resize, programs may pass the new limit, or the declared one, which the caller of Resize
// had passed. With any other limit, a request returns a *lockerr.LimitError that names both limits.
// Redis forgets the limit some time after the last grant, renewal or Resize
// (redlatch.WithFenceRetention). It does not forget the limit before the last permit has ended,
// unless the server loses its data. A Release does not count as a use.
//
// In Redis, a permit is a few entries of one sorted set, whose scores are the ends of the lease.
// The units in use are counted from these entries, by the server's clock, and from nothing else.
// The waiters are in a queue like that of a fair mutex.
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
