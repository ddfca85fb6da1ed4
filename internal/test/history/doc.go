// Package history records what clients of a lock did, and the answers that they got, for the checks
// of package check. There is one [Op] for each call, and one [Window] for each span in which a
// holder trusted its hold.
//
// A [Recorder] keeps the history in memory, or writes it to a file of its own process. The file
// gets one line when a call begins, and one when it has returned. So a process that is killed loses
// at most its last line. A call without a return has an unknown outcome.
//
// Instants are nanoseconds of a [Clock]. All instants that are compared need the same clock:
// [Monotonic] for the processes of one host, [Since] in virtual time.
package history
