// Package wake tells waiters that a channel was published to, over one pub/sub
// connection per client however many channels are waited for. A wake is a hint
// to look again and nothing more: it may be lost, late, doubled, merged with
// others or forged, so whoever waits for one also polls. Without pub/sub (down,
// denied, not spoken by a proxy) everything here still returns at once, and
// polling alone carries the waiters.
//
// # The order that misses nothing
//
//	sub := hub.Subscribe(channel)
//	defer sub.Close()
//	err := sub.Ready(ctx) // confirmed, or known not to come
//	// look; if there is nothing, wait for the first of sub.C(), a poll bound, ctx; look again
//
// What is published after the confirmation reaches C, what was published before
// Ready returned is covered by the look after it. Messages in the gap of a
// reconnect are gone. Therefore every waiter is woken when the connection is lost
// and again when its channel has been confirmed anew.
//
// # States of a channel
//
//	         SUBSCRIBE sent        confirmed          nobody waits, Linger over
//	wanted ────────────────▶ asked ─────────▶ live ─────────────▶ leaving ──▶ (forgotten)
//	  ▲                       │ ▲                                    │
//	  │      refused in a     │ │ its turn     refused alone         │ wanted again,
//	  │      batch: queued ◀──┴─┘              ────────▶ denied      │ confirmed
//	  ├── connection lost (asked, queued, live, leaving) ────────────┤
//	  └──────────────────────────────────────────────────────────────┘
//
// # Who does what
//
// Two goroutines, whatever the number of channels. The commander is the only one
// that writes: it dials, subscribes, unsubscribes, pings and closes. The reader
// only reads, and hands on by sends that never block, so that one slow waiter
// holds up nobody. One mutex guards the registry; no I/O happens under it.
//
// At most one command is under way. That groups what comes meanwhile into the
// next one (1,000 channels are a handful of commands), tells which command an
// error reply belongs to, and keeps the connection free of writes that wait for
// reads.
//
// # What proves the connection
//
// go-redis's own health check writes PING and never looks for the answer, so a
// half-open connection stays deaf for ever. Here silence is probed, and an answer
// that does not come ends the connection. A channel counts as subscribed when the
// server has confirmed it by name, never because a write succeeded.
package wake
