// Package lock has the types that all locks of redlatch give to their users: a [Hold], and [Info]
// about a lock.
//
// A hold promises the following as long as Redis keeps what the clients wrote. While the hold is
// trusted, no other owner has a trusted hold of the lock. The client notifies the holder of a loss
// before trust ends.
//
// A hold does not guarantee that nobody else works under the same lock. A process that is paused
// beyond its lease goes on where it stopped. Redis may forget a lock at a failover, or someone may
// delete or force-release the key. The fence protects against that: a resource that refuses fences
// smaller than the largest it has seen is safe from late writers.
package lock
