package lua

import (
	"context"
	"time"
)

var (
	acquireScript      = newGrantScript("mutex/acquire.lua")
	releaseScript      = newReleaseScript("mutex/release.lua")
	transferScript     = newGrantScript("mutex/transfer.lua")
	renewScript        = newScript("mutex/renew.lua")
	keepScript         = newScript("mutex/keep.lua")
	keepFencesScript   = newScript("mutex/keep_fences.lua")
	forceReleaseScript = newScript("mutex/force_release.lua")
	inspectScript      = newScript("mutex/inspect.lua")
)

// Status says what a script found; each function documents which it returns.
type Status int8

const (
	Granted       Status = iota + 1 // the acquisition has the lock
	Busy                            // another acquisition has it
	Gone                            // it is not this acquisition's any more
	Void                            // the command came after its end; nothing was changed
	Freed                           // the lock is free now
	StillHeld                       // holds are left
	NotHeld                         // nobody had the lock
	Queued                          // it waits in the queue
	LeftQueue                       // it gave up its place in the queue
	Removed                         // an operator took it out of the queue
	Denied                          // the server did not let us
	LimitDiffers                    // another limit is known
	OverLimit                       // more units than the limit
	QueueNotEmpty                   // it is free, and others stand in its queue
	Superseded                      // a later command of the kind took effect before
	Kept                            // nobody has the lock, and the server keeps it for a while
)

// AcquireParams are the arguments of [Acquire]. Keys and channels of frequent commands have the
// type any, and hold strings. A lock boxes them once, so that its commands need not.
type AcquireParams struct {
	LockKey, FenceKey, QueueKey any

	Acquisition    string
	Lease          time.Duration // whole milliseconds; 0 in a re-entry: it stays as it is
	Holds          int           // the number meant; above 1 is a re-entry
	VoidAfter      Time          // the server ignores the command past this
	FenceRetention time.Duration // 0: for ever
	Description    string        // of the holder
}

// AcquireReply is what [Acquire] found: Granted with a fence, Busy with the
// holder, Gone for a re-entry, QueueNotEmpty if it has to be handed on by
// [ReleaseFair], or Void.
type AcquireReply struct {
	Status      Status
	Fence       int64
	Holder      string
	Description string
	Remaining   time.Duration // of the holder's lease; negative: without end
	Now         Time
}

// Acquire gives the lock to one acquisition, or sets the holds of the one that
// has it. One round trip.
func Acquire(ctx context.Context, rdb Redis, p AcquireParams) (AcquireReply, error) {
	v, err := acquireScript.run(ctx, rdb, []any{p.LockKey, p.FenceKey, p.QueueKey},
		p.Acquisition, p.Lease.Milliseconds(), p.Holds, int64(p.VoidAfter), p.FenceRetention.Milliseconds(), p.Description)
	r := readReply(acquireScript, v, err)
	var out AcquireReply
	switch r.int(0) {
	case 1:
		out = AcquireReply{Status: Granted, Fence: r.int(1), Now: r.time(2)}
	case 0:
		out = AcquireReply{Status: Busy, Remaining: r.millis(1), Holder: r.text(2), Description: r.text(3), Now: r.time(4)}
	case -1:
		out = AcquireReply{Status: Gone, Now: r.time(1)}
	case -3:
		out = AcquireReply{Status: QueueNotEmpty, Remaining: -time.Millisecond, Now: r.time(1)}
	case -2:
		out = AcquireReply{Status: Void, Now: r.time(1)}
	default:
		r.unexpected()
	}
	return out, r.err
}

// ReleaseParams are the arguments of [Release].
type ReleaseParams struct {
	LockKey, QueueKey, Channel any

	Acquisition string
	HoldsLeft   int  // 0 frees the lock
	Cluster     bool // publish on the shard's channel too
	VoidAfter   Time // if holds are left, the server ignores the command past this
}

// ReleaseReply is what [Release] did: Freed, StillHeld, Gone, or Void.
type ReleaseReply struct {
	Status Status
	Now    Time // if it is StillHeld or Void
	// Receivers is how many subscribers got the message that the lock is free: all of
	// them on a single server, those of one node in a cluster. Negative: the
	// server does not say which.
	Receivers int64
	// HasWaiters says that the lock is free and others stand in its queue: nobody got a message,
	// and it is to be handed on by [ReleaseFair].
	HasWaiters bool
}

// Release releases one hold, or the lock with the last one. One round trip.
//
// If no node has both keys, because the slot migrates, Release sends again without the queue. Then
// those who wait there learn by their next heartbeats that the lock is free.
func Release(ctx context.Context, rdb Redis, p ReleaseParams) (ReleaseReply, error) {
	keys := []any{p.LockKey, p.QueueKey}
	args := []any{p.Acquisition, p.HoldsLeft, p.Channel, boolArg(p.Cluster), int64(p.VoidAfter)}
	v, err := releaseScript.run(ctx, rdb, keys, args...)
	if IsSplit(ctx, err) {
		v, err = releaseScript.run(ctx, rdb, keys[:1], args...)
	}
	r := readReply(releaseScript, v, err)
	var out ReleaseReply
	switch r.int(0) {
	case 2:
		out = ReleaseReply{Status: StillHeld, Now: r.time(1)}
	case 1:
		out = ReleaseReply{Status: Freed, Receivers: r.int(1), HasWaiters: r.int(2) == 1}
	case 0:
		out = ReleaseReply{Status: Gone}
	case -2:
		out = ReleaseReply{Status: Void, Now: r.time(1)}
	default:
		r.unexpected()
	}
	return out, r.err
}

func boolArg(on bool) int {
	if on {
		return 1
	}
	return 0
}

// TransferParams are the arguments of [Transfer].
type TransferParams struct {
	LockKey, FenceKey any
	From, To          string
	Lease             time.Duration // whole milliseconds
	VoidAfter         Time
	FenceRetention    time.Duration // 0: for ever

	// Exported says that From is an exported hold, perhaps of another client. Its description
	// changes, and a refusal leaves its lease as it was.
	Exported    bool
	Description string // of the client that gets an exported hold
}

// TransferReply is what [Transfer] did: Granted with a fence, Gone, or Void.
type TransferReply struct {
	Status Status
	Fence  int64
	Now    Time
}

// Transfer hands the lock from one acquisition to the next, which is of the same client unless From
// is exported. One round trip.
func Transfer(ctx context.Context, rdb Redis, p TransferParams) (TransferReply, error) {
	v, err := transferScript.run(ctx, rdb, []any{p.LockKey, p.FenceKey}, p.From, p.To, p.Lease.Milliseconds(),
		int64(p.VoidAfter), p.FenceRetention.Milliseconds(), boolArg(p.Exported), p.Description)
	r := readReply(transferScript, v, err)
	var out TransferReply
	switch r.int(0) {
	case 1:
		out = TransferReply{Status: Granted, Fence: r.int(1), Now: r.time(2)}
	case -1:
		out = TransferReply{Status: Gone, Now: r.time(1)}
	case -2:
		out = TransferReply{Status: Void, Now: r.time(1)}
	default:
		r.unexpected()
	}
	return out, r.err
}

// Renewal is one lock in a call of [Renew].
type Renewal struct {
	LockKey     string
	Acquisition string
	Lease       time.Duration // whole milliseconds; 0 only looks
}

// RenewAnswer is what [Renew] says of one lock.
type RenewAnswer int8

const (
	RenewGone    RenewAnswer = iota // not this acquisition's
	RenewHeld                       // held and not extended
	RenewDone                       // extended
	RenewRefused                    // the server did not let us
)

// Renew extends many locks of one slot, and only those that their acquisitions
// still have. One round trip.
func Renew(ctx context.Context, rdb Redis, batch []Renewal) ([]RenewAnswer, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	keys := make([]any, len(batch))
	args := make([]any, 0, 2*len(batch))
	for i, l := range batch {
		keys[i] = l.LockKey
		args = append(args, l.Acquisition, l.Lease.Milliseconds())
	}
	v, err := renewScript.run(ctx, rdb, keys, args...)
	return readRenewals(renewScript, v, err, len(batch))
}

// readRenewals reads one answer for each of n.
func readRenewals(script *script, v any, err error, n int) ([]RenewAnswer, error) {
	r := readReply(script, v, err)
	if r.err == nil && len(r.fields) != n {
		r.unexpected()
	}
	answers := make([]RenewAnswer, n)
	for i := range answers {
		switch r.int(i) {
		case 2:
			answers[i] = RenewDone
		case 1:
			answers[i] = RenewHeld
		case 0:
			answers[i] = RenewGone
		case -1:
			answers[i] = RenewRefused
		default:
			r.unexpected()
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return answers, nil
}

// KeepFences has the server keep the fences of many locks of one slot for that time at least. It
// returns how many live longer now. One round trip.
func KeepFences(ctx context.Context, rdb Redis, fenceKeys []any, keep time.Duration) (kept int, err error) {
	v, err := keepFencesScript.run(ctx, rdb, fenceKeys, keep.Milliseconds())
	r := readReply(keepFencesScript, v, err)
	if r.int(0) != 1 {
		r.unexpected()
	}
	return int(r.int(1)), r.err
}

// KeepParams are the arguments of [Keep].
type KeepParams struct {
	LockKey     any
	Acquisition string
	Kept        string // the id of what is kept, without the number; see keptid.New
	Number      int    // of the call, from 1
	For         time.Duration
	VoidAfter   Time
}

// KeepReply is what [Keep] did: Kept, Gone, or Void.
type KeepReply struct {
	Status Status
	Now    Time
}

// Keep ends an acquisition, and has the server keep its lock for a time. One round trip.
func Keep(ctx context.Context, rdb Redis, p KeepParams) (KeepReply, error) {
	v, err := keepScript.run(ctx, rdb, []any{p.LockKey},
		p.Acquisition, p.Kept, p.Number, p.For.Milliseconds(), int64(p.VoidAfter))
	return readKept(keepScript, v, err)
}

func readKept(script *script, v any, err error) (KeepReply, error) {
	r := readReply(script, v, err)
	out := KeepReply{Now: r.time(1)}
	switch r.int(0) {
	case 1:
		out.Status = Kept
	case 0:
		out.Status = Gone
	case -2:
		out.Status = Void
	default:
		r.unexpected()
	}
	return out, r.err
}

// ForceReleaseParams are the arguments of [ForceRelease].
type ForceReleaseParams struct {
	LockKey, QueueKey, Channel string

	Expected string // the acquisition to end; empty: whichever has the lock
	Cluster  bool   // publish on the shard's channel too
}

// ForceReleaseReply is what [ForceRelease] did: Freed or Busy, both with the
// holder, or NotHeld.
type ForceReleaseReply struct {
	Status Status
	Holder string
	// More says that the lock is free and expired waiters are left to be dropped
	// before it can be handed on: call again. Of fair mutexes only.
	More bool
	// HasWaiters is as in [ReleaseReply].
	HasWaiters bool
}

// ForceRelease ends a lock whoever has it. One round trip.
func ForceRelease(ctx context.Context, rdb Redis, p ForceReleaseParams) (ForceReleaseReply, error) {
	v, err := forceReleaseScript.run(ctx, rdb, []any{p.LockKey, p.QueueKey}, p.Expected, p.Channel, boolArg(p.Cluster))
	r := readReply(forceReleaseScript, v, err)
	out := r.forceReleaseReply()
	out.HasWaiters = out.Status == Freed && r.int(2) == 1
	return out, r.err
}

// forceReleaseReply reads what both kinds of mutex answer.
func (r *reply) forceReleaseReply() ForceReleaseReply {
	switch r.int(0) {
	case 1:
		return ForceReleaseReply{Status: Freed, Holder: r.text(1)}
	case 0:
		return ForceReleaseReply{Status: NotHeld}
	case -1:
		return ForceReleaseReply{Status: Busy, Holder: r.text(1)}
	}
	r.unexpected()
	return ForceReleaseReply{}
}

// InspectReply is the state of one lock.
type InspectReply struct {
	Holder      string // empty: nobody
	Holds       int
	Remaining   time.Duration // of the lease; negative: no holder, or without end
	Description string
	Fence       int64 // the last one given out; 0: none is stored
	Now         Time
}

// Inspect reads the state of one lock. One round trip.
func Inspect(ctx context.Context, rdb Redis, lockKey, fenceKey string) (InspectReply, error) {
	v, err := inspectScript.run(ctx, rdb, []any{lockKey, fenceKey})
	r := readReply(inspectScript, v, err)
	out := InspectReply{
		Holder: r.text(0), Holds: int(r.int(1)), Remaining: r.millis(2),
		Description: r.text(3), Fence: r.intText(4), Now: r.time(5),
	}
	return out, r.err
}
