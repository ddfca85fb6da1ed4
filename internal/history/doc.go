// Package history is what clients of a lock did and were told, for the verdicts
// of package check: one [Op] for each call, one [Window] for each span in which
// a hold was trusted.
//
// A [Recorder] keeps it in memory, or writes it to a file of the process's own:
// one line when a call begins and one when it has returned, so that a process
// that is killed loses at most its last line, and the call without a return
// shows as one whose outcome nobody knows.
//
// Instants are nanoseconds of a [Clock]. It has to be one clock for all that is
// compared: [Monotonic] for the processes of one host, [Since] in virtual time.
package history
