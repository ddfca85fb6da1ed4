// Package redlatch has locks for Go on Redis that stay right when things go
// wrong.
//
// What no lock service can promise, this one does not: a process that is paused
// beyond its lease still acts when it goes on, and a failover of Redis to a
// replica that lacks the last writes forgets locks. In both cases two processes
// can believe that they have the lock, and only a resource that checks the fence
// of each write stops the late one. The same goes for keys that are deleted,
// flushed, evicted or force-released: who had the lock hears of it at the next
// renewal. What is promised: as long as Redis keeps what it was told, at most one
// owner at a time is inside its trusted window, a hold's loss is told before that
// window ends, and every fresh grant of a name carries a larger fence than all
// before it.
//
//	locks, err := redlatch.New(rdb)        // rdb: any redis.UniversalClient
//	defer locks.Close(ctx)
//
//	err = locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
//		return charge(ctx)                 // may lock "orders:42" again
//	})
//
// # Owners
//
// A lock belongs to a hold that travels in the context, never to a goroutine. A lock can
// be acquired again ("re-entered") with the context of its hold, the one that Do gives
// its function or Hold.Context returns, and with every context derived from it. Each
// acquire needs its own release; after one of several the lock is still held. With any
// other context, Lock waits for the holder, also with the context that the holder itself
// called Lock with.
//
// So goroutines that are started under a lock exclude each other from all other locks,
// although they share a context. They do not exclude each other from the lock that they
// were started under: its context re-enters it in all of them.
//
// WithOwner makes one owner of a whole call chain instead, whose contexts re-enter all
// its locks. Goroutines of such a chain do not exclude each other at all.
//
// # Leases and trust
//
// Redis keeps a lock for a lease, which a watchdog renews while the process
// lives. A hold is trusted until
//
//	the instant before the last successful acquire or renewal was sent + lease − margin
//
// so a slow reply cannot stretch trust, and the holder stops trusting before
// Redis stops keeping. A hold that is not confirmed by then, or that Redis says
// is gone, is lost: its Lost channel is closed and its context ends with a
// cause. Nobody's work is aborted unasked.
//
// # Waiting
//
// Waiters are told of a release by pub/sub, over one connection for each client.
// Messages are hints that may be lost, so waiters also ask by themselves, rarely.
// The context given to Lock bounds the wait and nothing else.
//
// # Commands that were sent and not answered
//
// Every change is one Lua script that can run twice. A lost reply never makes a
// count drift or leaves a lock behind: the script is sent again, and what may
// have been granted to somebody who has left is given back in the background.
package redlatch
