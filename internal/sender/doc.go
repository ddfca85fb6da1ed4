// Package sender sends commands to Redis for callers that may leave before the answer.
//
// Nobody can cancel a command that go-redis has written. While go-redis waits for an answer, it
// ignores the end of a context. It respects a deadline only if the user's client has
// ContextTimeoutEnabled. So a caller hands its command to a worker, which is a goroutine of the
// sender. The caller then waits for the answer, or for a reason to leave. The worker calls
// go-redis. After the answer it waits a while for the next command, so that a command needs no new
// goroutine.
//
// If go-redis obeys deadlines and Redis answers fast, a lone caller sends in its own goroutine, for
// DirectFor at most. This saves two switches between goroutines, which cost as much as a command.
//
// If all commands go to one server, which may be a master of a cluster, a worker sends all that
// wait as one pipeline. A command waits only while a worker starts, or while four workers are
// sending, and then about 5 ms at most. If commands may go to several servers, each is sent alone,
// so that a slow server does not delay the answers of another one.
package sender
