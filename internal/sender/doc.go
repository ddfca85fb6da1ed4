// Package sender sends commands to Redis for callers who may leave before the answer.
//
// It does not cancel a command that was written: nobody can. go-redis looks at a cancel
// never, and at a deadline only where the user's client was built so. So a caller hands its
// command to a worker, a goroutine of the sender, and waits for the answer or for its own
// end. A worker calls go-redis and then waits for the next command for a while, so that a
// command needs no goroutine of its own.
//
// A caller that has no need to leave sends in its own goroutine, when nobody else sends: two
// switches between goroutines cost as much as a command.
//
// Commands that arrive while workers are busy wait, and go out together, as one pipeline.
// Nothing is delayed for that: a command that finds no busy worker is sent at once. Batches
// need a client of one server. Where commands may go to several, each is sent by itself, so
// that a slow server delays nothing that another one answers.
package sender
