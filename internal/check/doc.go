// Package check has the verdicts over what clients of a lock did. Each sees what
// the others cannot:
//
//   - [Linearizable]: what clients were told is what one lock, asked by one client
//     after the other, could have told them. Refusals have to be justified too.
//     Of a [FairMutex] the order is a part. For histories in which nothing expires, or
//     those of which [Expiring] has made the end of a lease an operation; [Unheard] and
//     [Grants] excuse there what no client could know.
//   - [Order]: nobody passed over one that waited. Bears expiry, and excuses those
//     who could not be heard of.
//   - [Prompt]: a lock that is given back is not free while somebody waits for it.
//   - [Overlaps]: no more units were trusted to be held at one time than there
//     were: 1 for a mutex. Bears expiry, deleted keys, dead processes.
//   - [Fences]: only grow.
//   - [Resource]: what a lock protects, written with and without a look at the
//     fence: how much damage there really is, and that fences prevent it.
package check
