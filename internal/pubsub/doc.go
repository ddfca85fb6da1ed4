// Package pubsub wakes waiters when a message is published to their channel. It uses one pub/sub
// connection per client, whatever the number of channels, and in a cluster one more for each
// master. A wake-up is only a hint to ask Redis again. It may be lost, late, doubled, merged with
// others or forged, so a waiter also has to poll. Pub/sub may be down, denied, or unknown to a
// proxy. The calls of a waiter then still return, after timings.ping at most, and the waiter polls.
//
// # The order of calls that misses no message
//
//	sub := hub.Subscribe(channel)
//	defer sub.Close()
//	err := sub.Ready(ctx) // confirmed, or known not to come
//	// ask; if the lock is not free, wait for the first of sub.C(), a poll bound, ctx; ask again
//
// A message that is published after the confirmation reaches C. An earlier one is covered by asking
// Redis after Ready. Messages in the gap of a reconnect are lost. Therefore the hub wakes every
// waiter when the connection is lost, and again when its channel has been confirmed anew.
//
// # States of a channel
//
//	         SUBSCRIBE sent        confirmed          nobody waits, linger over
//	unsent ─────────────▶ subscribing ────▶ subscribed ────────▶ unsubscribing ──▶ (forgotten)
//	  ▲                       │ ▲                                    │
//	  │      refused in a     │ │ its turn     refused alone         │ wanted again,
//	  │      batch: queued ◀──┴─┘              ────────▶ denied      │ confirmed
//	  ├── connection lost (not for unsent and denied) ───────────────┤
//	  └──────────────────────────────────────────────────────────────┘
//
// # Sharded channels
//
// In a cluster, Redisson publishes to sharded channels. A hub with Config.Shard listens to those as
// well. It has another hub for each node, whose channels are the sharded ones of that node; see
// shards. A message there wakes the waiters of the classic channel of that name, unless the sender
// says that it also publishes to that one (SentTwice).
//
// # Goroutines
//
// A hub has two goroutines, whatever the number of channels. A third one runs while it writes log
// lines, and one while it sends an echo. The hubs of nodes have as many each. Only the commander
// writes: it dials, subscribes, unsubscribes, pings and closes. The reader only reads. It passes
// messages on by sends that never block, so that a slow waiter delays nobody. One mutex guards the
// state of the hub, and no I/O happens under it.
//
// At most one command is in flight. So channels that come meanwhile share the next command: 1,000
// channels take a handful of commands. An error reply belongs to that command, except that of the
// PING with which some connections begin. And no write on the connection waits for reads.
//
// # What proves the connection
//
// The health check of go-redis writes PING and never checks for the answer, so a half-open
// connection stays silent for ever. The hub probes a silent connection, and ends it if no answer
// comes. A connection may also answer and get no messages; see echo. A channel counts as subscribed
// when the server has confirmed it by name, and never because a write succeeded.
package pubsub
