// Package watchdog keeps leases alive and notifies their owners when they end. It does not
// guarantee that the owner of a lease acts only while the lease lasts. A process that is paused
// between its look at [Lease.Trusted] and the act that follows acts too late. Only a fence that the
// resource checks stops it. The package does not promise that a lease is extended either. It
// promises that the owner can know whether to trust the lease.
//
// A lease is named by what is leased (Key) and by who holds it (ID), and it belongs to one
// acquisition. The server is the authority for whether it is still valid. Local time is used for
// one thing: to stop trusting the lease early enough. The package knows leases, time and a [Renew]
// function, and nothing of Redis.
//
//	          due            a call may start
//	┌─> idle ─────> waiting ──────────────> in call ─┐
//	│                                                │
//	└────────── renewed · held · unknown ────────────┘
//
//	any of them ── gone, or trust over ──> lost ──> notified  OnLost is called
//	any of them, or lost ── Stop, Close ──> stopped         OnLost never is
//
// # Trust
//
//	trusted until = instant before the command that succeeded was sent + lease − margin
//
// It is the instant before, so that a slow reply cannot stretch trust: the server's lease began
// after it. The margin makes the owner stop before the server does, even if the two clocks run at
// slightly different speeds. When trust ends, the lease is lost at that instant, whether a renewal
// is due, hanging or about to answer. A later answer does not bring it back.
//
// Trust is kept on the monotonic clock, which stands still while a machine is suspended, and on the
// wall clock, which does not. Past the end of trust on either clock, [Lease.Trusted] is false.
//
// The wall clock alone never ends a lease, because a mere step of it (an operator, NTP after boot)
// would end healthy ones. Instead it makes the watchdog ask immediately, and the answer decides. If
// the wall clock is set back, the watchdog adds the step to every later reading, so that it still
// notices a suspend that follows. It compares the clocks once a second while it has leases. If the
// machine is suspended and the wall clock is set back within the same second, it notices only the
// difference.
//
// # What is scoped to one acquisition
//
// Everything is scoped to one acquisition. If a lease is watched again under the same key, it is
// another lease. An answer to a renewal of the first never touches the second. The package looks up
// no lease by key or by id.
//
// # Under failure
//
//   - A renewal fails, panics, answers too little or not in time: that is no answer. Trust neither
//     grows nor ends by it. The watchdog asks again soon, with jitter, until trust ends.
//   - A renewal ignores its context: the watchdog asks again. The goroutine stays until the renewal
//     returns. If the renewal then says that a lease was extended, trust grows, counted from the
//     instant when the renewal was sent. The watchdog ignores any other late result.
//   - The server answers renewals slowly: each attempt gets twice the time of the one before, up to
//     half of the trust that is left.
//   - One group hangs: at most a few calls of a group are in flight. A call that is slow does not
//     count among the calls of its server any more.
//   - One server hangs: the others have calls of their own, see [Config].
//   - The server says the lease is not ours: it is lost immediately, unless [Lease.Stop] came
//     first; then it is the expected end.
//   - The machine was suspended: the watchdog notices within a second of waking. The suspend may
//     end a lease earlier that the watchdog only checks and does not renew. The watchdog checks it
//     when the wall clock says that it ends, and again a second later, two, four, and so on.
//
// # Cost
//
// The watchdog costs one goroutine and one timer in all, and one goroutine per call in flight. A
// lease takes about 150 bytes (BenchmarkHeld100000). Watch and Stop take one mutex and O(log n),
// and wake nobody unless the new lease is due before anything else.
package watchdog
