// Package check judges what clients of a lock did. Each check finds what the others cannot:
//
//   - [Linearizable]: one lock that serves one client after the other could have given the same
//     answers. Refusals have to be justified too. For a [FairMutex] that includes the order. It is
//     for histories in which nothing expires, and for those in which [Expiring] has made the end of
//     a lease an operation. In the latter, [Unnotified], [Delayed] and [Grants] excuse what no
//     client could know.
//   - [Order]: nobody got ahead of a waiter. Holds may expire. Waiters that Redis may have taken
//     for crashed are excused.
//   - [Prompt]: a lock that is released is not free while somebody waits for it.
//   - [Overlaps]: holders never trusted more units at the same time than there were, which is 1 for
//     a mutex. Holds may expire, keys may be deleted, and processes may crash.
//   - [Fences]: fences only grow.
//   - [Resource]: the thing that a lock protects, written with and without a check of the fence. It
//     shows how much damage there really is, and that fences prevent it.
package check
