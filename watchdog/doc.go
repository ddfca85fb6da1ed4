// Package watchdog keeps leases alive and tells when they end. It does not
// guarantee that a lease's owner acts only while the lease lasts: a process
// that is paused between its look at [Lease.Trusted] and the act that follows
// acts too late, and only a fence checked by the resource stops it. Nor does
// it promise that a lease is extended; it promises that the owner can know.
//
// A lease is named by what is leased (Key) and by who holds it (ID), and it
// belongs to one acquisition. The server is the authority for whether it still
// stands. Local time is used for one thing: to stop trusting it early enough.
// The package knows leases, time and a [Renew] function, and nothing of Redis.
//
//	          due            place free
//	┌─> idle ─────> waiting ────────────> asked ──┐
//	│                                             │
//	└──────── renewed · held · unknown ───────────┘
//
//	any of them ── gone, or trust over ──> lost ──> told    Ended is called
//	any of them, or lost ── Stop, Close ──> stopped         Ended never is
//
// # Trust
//
//	trusted until = instant before the command that succeeded was sent + lease − margin
//
// The instant before, so that a slow reply cannot stretch trust: the server's
// lease began after it. Less a margin, so that the owner stops before the
// server does, also when the two clocks run at slightly different speeds. When
// trust ends, the lease is lost at that instant, whether a renewal is due,
// hanging or about to answer, and a later answer does not bring it back.
//
// Trust is kept on the monotonic clock, which stands still while a machine is
// suspended, and on the wall clock, which does not. Past it on either,
// [Lease.Trusted] is false. The wall clock alone never ends a lease, because a
// mere step of it (an operator, NTP after boot) would end healthy ones;
// instead it makes the watchdog ask at once, and the answer decides. When the wall
// clock is set back, the watchdog adds what it was set back to every later reading, so
// that it still sees a suspend that follows. It compares the clocks once a second while
// it has leases. If the machine is suspended and the wall clock is set back within the
// same second, it sees only the difference.
//
// # What is scoped to one acquisition
//
// Everything: that means a lease watched again under the same key is another
// lease, that an answer to a question of the first never touches the second,
// and that nothing here is found by key or by id.
//
// # Under failure
//
//   - A renewal fails, panics, answers too little or not in time: that is no
//     answer. Trust neither grows nor ends by it; it is asked again soon, with
//     jitter, until trust ends.
//   - A renewal ignores its context: the watchdog asks again. The goroutine stays until
//     the renewal returns. If it says then that a lease was extended, trust grows by that,
//     counted from its sending; nothing else that it says counts.
//   - Renewals are answered slowly: each try gets twice the time of the one before, up to
//     half of the trust that is left.
//   - One group hangs: it keeps only its own few places busy, and a call that
//     is slow gives its place among all groups back after a moment.
//   - The server says the lease is not ours: it is lost at once, unless
//     [Lease.Stop] came first; then it is the expected end.
//   - The machine was suspended: noticed within a second of waking. A lease that is
//     only looked at, and that ends earlier by the suspend, is looked at when the wall
//     clock says that it ends, and again a second later, two, four, and so on.
//
// # Cost
//
// One goroutine and one timer in all, and one goroutine per call under way. A
// lease takes about 150 bytes (BenchmarkHeld100000). Watch and Stop take one mutex and O(log n),
// and wake nobody unless the new lease is due before anything else.
package watchdog
