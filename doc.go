// Package redlatch provides locks for Go on Redis that stay correct when things go wrong.
//
// Redlatch promises the following as long as Redis keeps what the clients wrote. At most one owner
// at a time is inside its trusted window. The client notifies a holder of a loss before that window
// ends. Every fresh grant of a name has a larger fence than all grants of that name before it.
//
// No lock service can prevent the following, and this one does not. A process that is paused beyond
// its lease still acts when it resumes. A failover of Redis to a replica that lacks the last writes
// forgets locks. In both cases two processes can believe that they hold the same lock. Only a
// resource that checks the fence of each write stops the late one. Two processes can also believe
// it after somebody deletes or force-releases the lock, or Redis evicts it. The old holder finds
// out at its next renewal.
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
// A lock belongs to an owner, which travels in the context, and never to a goroutine. Normally each
// hold is an owner. The context of a hold is the one that Do gives its function, or that
// Hold.Context returns. It re-enters the lock, and so does every context derived from it. Each
// acquire needs its own release; after one of several releases, the lock is still held. With any
// other context, Lock waits for the holder. That includes the context with which the holder itself
// called Lock.
//
// So goroutines that are started under a lock exclude each other from all other locks, although
// they share a context. They do not exclude each other from the lock that they were started under:
// its context re-enters it in all of them.
//
// WithOwner instead makes one owner of a whole call chain. The contexts of the chain re-enter all
// its locks. Goroutines of such a chain do not exclude each other at all. The page docs/usage.md
// has the whole rule, with errgroup.
//
// # Leases and trust
//
// Redis keeps a lock for a lease, which a watchdog renews while the process lives. A hold is
// trusted until
//
//	the instant before the last successful acquire or renewal was sent + lease − margin
//
// So a slow reply cannot stretch trust, and the holder stops trusting the lock before Redis stops
// keeping it. A hold is lost if Redis does not confirm it by then, or says that it is gone. Then
// its Lost channel is closed and its context ends with a cause. Redlatch does not stop the work
// itself.
//
// # Waiting
//
// Pub/sub notifies waiters of a release. A client has one connection for that, and in a cluster one
// more for each master with locks that it waits for. A message is a hint that may be lost, so
// waiters also ask Redis by themselves, rarely. The context given to Lock bounds only the wait. The
// context given to Do bounds the wait and the work. To bound only the wait, use [WithWaitTimeout],
// or [WithWaitDeadline] for all waits of a request together.
//
// # Commands that were sent and not answered
//
// Every change is one Lua script that can run twice. A lost reply never makes a count drift or
// leaves a lock behind. The client sends the script again. In the background, it releases what
// Redis may have granted to a caller that has left.
package redlatch
