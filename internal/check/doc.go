// Package check has the verdicts over what clients of a lock did. Each sees what
// the others cannot:
//
//   - [Linearizable]: what clients were told is what one lock, asked by one client
//     after the other, could have told them. Refusals have to be justified too.
//     For histories in which nothing expires.
//   - [Overlaps]: no more units were trusted to be held at one time than there
//     were: 1 for a mutex. Bears expiry, deleted keys, dead processes.
//   - [Fences]: only grow.
//   - [Resource]: what a lock protects, written with and without a look at the
//     fence: how much damage there really is, and that fences prevent it.
package check
