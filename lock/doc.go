// Package lock has what all locks of redlatch give to their users: a [Hold],
// and [Info] about a lock.
//
// A hold does not make it certain that nobody else works under the same lock: a
// process that is paused beyond its lease goes on where it stood, and Redis may
// forget a lock at a failover, or have it taken away: a key that is deleted, or
// force-released. What a hold does promise: as long as Redis keeps what it was
// told, no other trusted hold of the lock exists while this one is trusted, and its
// loss is told before trust ends.
// For the rest there is the fence: a resource that refuses fences smaller than
// the largest it has seen is safe from late writers.
package lock
