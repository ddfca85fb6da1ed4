package lua

import (
	"context"
	"time"
)

var (
	joinScript      = newGrantScript("fair/join.lua")
	beatScript      = newScript("fair/beat.lua")
	leaveScript     = newReleaseScript("fair/leave.lua")
	forceFairScript = newScript("fair/force_release.lua")
)

// FairKeys are the keys of one fair mutex: strings, see [AcquireParams].
type FairKeys struct{ Lock, Fence, Queue, Alive any }

func (k FairKeys) all() []any { return []any{k.Lock, k.Fence, k.Queue, k.Alive} }

func (r *reply) queueState(i int) QueueState {
	return QueueState{
		Position: int(r.int(i)), Length: int(r.int(i + 1)), Remaining: r.millis(i + 2),
		Holder: r.text(i + 3), Description: r.text(i + 4), Fence: r.int(i + 5),
	}
}

// JoinParams are the arguments of [Join].
type JoinParams struct {
	Keys           FairKeys
	Waiter         Waiter
	Ticket         int64 // from before; 0: a new one
	Try            bool  // never queue
	VoidAfter      Time
	FenceRetention time.Duration // 0: for ever
	ClientChannels string        // what the channel of every client begins with
}

// JoinReply is what [Join] found: Granted with a fence, Queued with a ticket and
// the place, Busy with the place it would have had, or Void.
type JoinReply struct {
	Status     Status
	Fence      int64
	Ticket     int64
	QueueState QueueState
	Now        Time
}

// Join gives the lock to a waiter if it is its turn, and else queues it. One
// round trip.
func Join(ctx context.Context, rdb Redis, p JoinParams) (JoinReply, error) {
	ticket := p.Ticket
	if p.Try {
		ticket = -1
	}
	v, err := joinScript.run(ctx, rdb, p.Keys.all(), p.Waiter.member(), ticket,
		int64(p.VoidAfter), p.FenceRetention.Milliseconds(), p.ClientChannels)
	r := readReply(joinScript, v, err)
	var out JoinReply
	switch r.int(0) {
	case 1:
		out = JoinReply{Status: Granted, Fence: r.int(1), Now: r.time(2)}
	case 2:
		out = JoinReply{Status: Queued, QueueState: r.queueState(1), Ticket: r.int(7), Now: r.time(8)}
	case 0:
		out = JoinReply{Status: Busy, QueueState: r.queueState(1), Now: r.time(7)}
	case -2:
		out = JoinReply{Status: Void, Now: r.time(1)}
	default:
		r.unexpected()
	}
	return out, r.err
}

// Heartbeat is one waiter in a call of [Heartbeats].
type Heartbeat struct {
	Keys   FairKeys
	Waiter Waiter
}

// HeartbeatReply is what [Heartbeats] says of one waiter: Granted with a fence, Queued with
// the place, Gone, Removed, or Denied; of permits also OverLimit, for QueueState.Limit is
// below the units.
type HeartbeatReply struct {
	Status     Status
	Fence      int64
	QueueState QueueState
}

// Heartbeats notes that waiters of one slot live, and tells each how it stands. Those that
// were granted the lock have it for their whole lease then if they take it, and else
// for as long as before. One round trip.
func Heartbeats(ctx context.Context, rdb Redis, keepFence time.Duration, clients string, take bool, batch []Heartbeat) ([]HeartbeatReply, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	keys := make([]any, 0, 4*len(batch))
	args := append(make([]any, 0, 3+len(batch)), keepFence.Milliseconds(), clients, boolArg(take))
	for _, b := range batch {
		keys = append(keys, b.Keys.all()...)
		args = append(args, b.Waiter.member())
	}
	v, err := beatScript.run(ctx, rdb, keys, args...)
	return readBeats(beatScript, v, err, len(batch), func(one *reply) int64 { return one.int(1) }, (*reply).queueState)
}

// readBeats reads how each waiter of a batch stands. A grant has a fence, or none,
// and a queue of permits says more of a place than one of a lock.
func readBeats(s *script, v any, err error, n int, fence func(*reply) int64, place func(*reply, int) QueueState) ([]HeartbeatReply, error) {
	r := readReply(s, v, err)
	if r.err == nil && len(r.fields) != n {
		r.unexpected()
	}
	answers := make([]HeartbeatReply, n)
	for i := range answers {
		one := r.nested(i)
		switch one.int(0) {
		case 1:
			answers[i] = HeartbeatReply{Status: Granted, Fence: fence(&one)}
		case 2:
			answers[i] = HeartbeatReply{Status: Queued, QueueState: place(&one, 1)}
		case 0:
			answers[i] = HeartbeatReply{Status: Gone}
		case 3:
			answers[i] = HeartbeatReply{Status: Removed}
		case 4:
			answers[i] = HeartbeatReply{Status: OverLimit, QueueState: QueueState{Limit: int(one.int(1))}}
		case -1:
			answers[i] = HeartbeatReply{Status: Denied}
		default:
			one.unexpected()
		}
		r.err = one.err
	}
	if r.err != nil {
		return nil, r.err
	}
	return answers, nil
}

// ReleaseFairParams are the arguments of [ReleaseFair].
type ReleaseFairParams struct {
	Keys           FairKeys
	Waiter         Waiter
	Channel        string        // gets a message when the lock is free for everybody
	FenceRetention time.Duration // 0: for ever
	ClientChannels string
	Cluster        bool // publish on the shard's channel too
}

// ReleaseFairReply is what [ReleaseFair] did: Freed, LeftQueue, or Gone.
type ReleaseFairReply struct {
	Status Status
	// Receivers is how many got the message that the lock is theirs, or free. Negative:
	// the server does not say which.
	Receivers int64
	// More says that the lock is free and expired waiters are left to be dropped
	// before it can be handed on: call again.
	More bool
}

// ReleaseFair releases the lock, which goes to the next waiter, or the place in the
// queue. One round trip.
//
// If no node has all keys, because the slot migrates, ReleaseFair only frees a lock, without the
// queue. The waiters learn of it by their next heartbeats.
func ReleaseFair(ctx context.Context, rdb Redis, p ReleaseFairParams) (ReleaseFairReply, error) {
	v, err := leaveScript.run(ctx, rdb, p.Keys.all(), p.Waiter.member(), p.Channel, p.FenceRetention.Milliseconds(), p.ClientChannels, boolArg(p.Cluster))
	if IsSplit(ctx, err) {
		freed, freeErr := releaseScript.run(ctx, rdb, []any{p.Keys.Lock}, p.Waiter.Acquisition, 0, p.Channel, boolArg(p.Cluster))
		if reply := readReply(releaseScript, freed, freeErr); reply.int(0) == 1 || isUnclear(freeErr) {
			v, err = freed, freeErr
		}
	}
	r := readReply(leaveScript, v, err)
	out := ReleaseFairReply{Receivers: r.int(1), More: r.int(2) == 1}
	switch r.int(0) {
	case 1:
		out.Status = Freed
	case 2:
		out.Status = LeftQueue
	case 0:
		out.Status = Gone
	default:
		r.unexpected()
	}
	return out, r.err
}

// ForceReleaseFairParams are the arguments of [ForceReleaseFair].
type ForceReleaseFairParams struct {
	Keys           FairKeys
	Expected       string // the acquisition to end; empty: whichever has the lock
	Channel        string
	FenceRetention time.Duration // 0: for ever
	ClientChannels string
	Cluster        bool // publish on the shard's channel too
}

// ForceReleaseFair ends a lock whoever has it, and gives it to the next waiter.
// One round trip.
func ForceReleaseFair(ctx context.Context, rdb Redis, p ForceReleaseFairParams) (ForceReleaseReply, error) {
	v, err := forceFairScript.run(ctx, rdb, p.Keys.all(), p.Expected, p.Channel, p.FenceRetention.Milliseconds(), p.ClientChannels, boolArg(p.Cluster))
	r := readReply(forceFairScript, v, err)
	out := r.forceReleaseReply()
	switch out.Status {
	case Freed:
		out.More = r.int(2) == 1
	case NotHeld:
		out.More = r.int(1) == 1
	}
	return out, r.err
}
