package lua

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The scripts for operators, which serve the queues of fair mutexes and of semaphores.
var (
	removeScript = newScript("queue/remove.lua")
	listScript   = newScript("queue/list.lua")
	findScript   = newScript("queue/find.lua")
)

// Waiter is one member of a queue: all that a grant needs to know of it.
type Waiter struct {
	Acquisition string        // which it will become; never used for two
	Units       int           // how much it wants: 1 of a mutex
	Heartbeat   time.Duration // whole milliseconds
	Lease       time.Duration // of the grant, all its life; whole milliseconds
	Description string        // of the waiter
}

// member is how the waiter stands in the queue: for people too.
func (w Waiter) member() string {
	return strings.TrimRight(fmt.Sprintf("%s %d %d %d %s", w.Acquisition, w.Units, w.Heartbeat.Milliseconds(), w.Lease.Milliseconds(), w.Description), " ")
}

// readWaiter is the inverse of member. It takes a text that is no waiter for one that has
// only an acquisition.
func readWaiter(member string) Waiter {
	part := strings.SplitN(member, " ", 5)
	if len(part) < 4 {
		return Waiter{Acquisition: member}
	}
	units, _ := strconv.Atoi(part[1])
	heartbeat, _ := strconv.ParseInt(part[2], 10, 64)
	lease, _ := strconv.ParseInt(part[3], 10, 64)
	w := Waiter{
		Acquisition: part[0], Units: units,
		Heartbeat: time.Duration(heartbeat) * time.Millisecond, Lease: time.Duration(lease) * time.Millisecond,
	}
	if len(part) == 5 {
		w.Description = part[4]
	}
	return w
}

// QueueState is how a waiter stands, and who has what it waits for.
type QueueState struct {
	Position int // 1 is next
	Length   int // of the queue

	// Remaining is until a waiter should ask again: until the lease of the holder
	// ends, or of a semaphore the first of them, or until its first waiter, which
	// does not fit, counts as dead; 0 while more is to be dropped than one call may;
	// negative: without end, or there is none.
	Remaining time.Duration

	// Of a mutex.
	Holder      string // empty: the lock is free, and expired waiters are being dropped
	Description string
	Fence       int64 // the holder's

	// Of a semaphore.
	Free  int // units; below zero after the limit was lowered
	Limit int

	// Of a semaphore that was asked with another limit than it has: what programs
	// say since before a Resize; may be the same.
	Declared int
}

// Remove takes a waiter out of the queue and lets it know. It reports whether it waited,
// or a note says that it was removed before. One round trip.
func Remove(ctx context.Context, rdb Redis, queueKey, aliveKey string, w Waiter, clients string) (bool, error) {
	v, err := removeScript.run(ctx, rdb, []any{queueKey, aliveKey}, w.member(), clients)
	r := readReply(removeScript, v, err)
	return r.int(0) == 1, r.err
}

// QueuedWaiter is one waiter in a [QueueReply].
type QueuedWaiter struct {
	Waiter
	Ticket        int64         // server time when it came, in µs, or a little more
	HeartbeatLeft time.Duration // of its heartbeat; below zero: it counts as dead
}

// QueueReply is a part of a queue, in order.
type QueueReply struct {
	Now     Time
	Length  int
	After   string // the ticket behind which the next part begins
	Waiters []QueuedWaiter
}

// Queue shows who waits, in order: as many as asked for, after those to skip; or, where
// behind is not empty, behind that ticket. Waiters with the ticket of the last one are shown
// too, above that number. One round trip.
func Queue(ctx context.Context, rdb Redis, queueKey, aliveKey string, skip int, behind string, show int) (QueueReply, error) {
	v, err := listScript.run(ctx, rdb, []any{queueKey, aliveKey}, skip, behind, show)
	r := readReply(listScript, v, err)
	out := QueueReply{Now: r.time(0), Length: int(r.int(1)), After: r.text(3)}
	grace := r.int(2)
	for i := 4; r.err == nil && i < len(r.fields); i += 3 {
		left := time.Duration(max(r.int(i+2), grace)-out.Now.UnixMilli()) * time.Millisecond
		out.Waiters = append(out.Waiters, QueuedWaiter{Waiter: readWaiter(r.text(i)), Ticket: r.int(i + 1), HeartbeatLeft: left})
	}
	return out, r.err
}

// FindReply is what [Find] found: the waiter, Queued; or its absence from the part that was
// looked at, Gone.
type FindReply struct {
	Status Status
	Waiter Waiter
	After  string // of a Gone: the ticket behind which to go on; empty at the end of the queue
}

// Find looks for the waiter that would become an acquisition, among so many behind a ticket;
// an empty one is the front. One round trip.
func Find(ctx context.Context, rdb Redis, queueKey, aliveKey, acquisition, behind string, most int) (FindReply, error) {
	v, err := findScript.run(ctx, rdb, []any{queueKey, aliveKey}, acquisition, behind, most)
	r := readReply(findScript, v, err)
	var out FindReply
	switch r.int(0) {
	case 1:
		out = FindReply{Status: Queued, Waiter: readWaiter(r.text(1))}
	case 2:
		out = FindReply{Status: Gone, After: r.text(1)}
	case 0:
		out = FindReply{Status: Gone}
	default:
		r.unexpected()
	}
	return out, r.err
}
