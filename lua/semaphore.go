package lua

import (
	"context"
	"strconv"
	"strings"
	"time"
)

var (
	acquirePermitsScript = newGrantScript("semaphore/acquire.lua")
	beatPermitsScript    = newScript("semaphore/beat.lua")
	releasePermitsScript = newReleaseScript("semaphore/release.lua")
	renewPermitsScript   = newScript("semaphore/renew.lua")
	keepPermitScript     = newScript("semaphore/keep.lua")
	resizeScript         = newScript("semaphore/resize.lua")
	forcePermitsScript   = newScript("semaphore/force_release.lua")
	inspectPermitsScript = newScript("semaphore/inspect.lua")
)

// MaxUnits is the largest limit, and so the most units of one permit: an entry of
// the permits stands for at most 2^30 units.
const MaxUnits = 1<<31 - 1

// SemaphoreKeys are the keys of one semaphore: strings, see [AcquireParams].
type SemaphoreKeys struct{ Permits, Holders, Queue, Alive any }

func (k SemaphoreKeys) all() []any { return []any{k.Permits, k.Holders, k.Queue, k.Alive} }

// permitQueueState reads a place in the queue of a semaphore.
func (r *reply) permitQueueState(i int) QueueState {
	return QueueState{
		Position: int(r.int(i)), Length: int(r.int(i + 1)), Free: int(r.int(i + 2)),
		Limit: int(r.int(i + 3)), Remaining: r.millis(i + 4),
	}
}

// AcquirePermitsParams are the arguments of [AcquirePermits].
type AcquirePermitsParams struct {
	Keys           SemaphoreKeys
	Waiter         Waiter // with the units
	Ticket         int64  // from before; 0: a new one
	Try            bool   // never queue
	VoidAfter      Time
	Limit          int           // what the program says
	Retention      time.Duration // limit and permits; 0: for ever
	ClientChannels string        // what the channel of every client begins with
}

// AcquirePermits gives units to a waiter if they are free and it is its turn, and
// else queues it. It finds what [Join] finds, without a fence; or LimitDiffers, with the
// limits that would have done in QueueState.Limit and Declared; or OverLimit, for
// QueueState.Limit is below the units. One round trip.
func AcquirePermits(ctx context.Context, rdb Redis, p AcquirePermitsParams) (JoinReply, error) {
	ticket := p.Ticket
	if p.Try {
		ticket = -1
	}
	v, err := acquirePermitsScript.run(ctx, rdb, p.Keys.all(), p.Waiter.member(), ticket,
		int64(p.VoidAfter), p.Limit, p.Retention.Milliseconds(), p.ClientChannels)
	r := readReply(acquirePermitsScript, v, err)
	var out JoinReply
	switch r.int(0) {
	case 1:
		out = JoinReply{Status: Granted, Now: r.time(1)}
	case 2:
		out = JoinReply{Status: Queued, QueueState: r.permitQueueState(1), Ticket: r.int(6), Now: r.time(7)}
	case 0:
		out = JoinReply{Status: Busy, QueueState: r.permitQueueState(1), Now: r.time(6)}
	case -2:
		out = JoinReply{Status: Void, Now: r.time(1)}
	case -3:
		out = JoinReply{Status: LimitDiffers, QueueState: QueueState{Limit: int(r.int(1)), Declared: int(r.int(2))}, Now: r.time(3)}
	case -4:
		out = JoinReply{Status: OverLimit, QueueState: QueueState{Limit: int(r.int(1))}, Now: r.time(2)}
	default:
		r.unexpected()
	}
	return out, r.err
}

// PermitHeartbeat is one waiter in a call of [PermitHeartbeats].
type PermitHeartbeat struct {
	Keys   SemaphoreKeys
	Waiter Waiter
	Limit  int // where none is known any more
}

// PermitHeartbeats notes that waiters of one slot live, and tells each how it stands:
// Granted, without a fence, Queued with the place, Gone, Removed, OverLimit, or
// Denied. Those that were granted their units have them for their whole lease then if
// they take them, and else for as long as before. One round trip.
func PermitHeartbeats(ctx context.Context, rdb Redis, keep time.Duration, clients string, take bool, batch []PermitHeartbeat) ([]HeartbeatReply, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	keys := make([]any, 0, 4*len(batch))
	args := append(make([]any, 0, 3+2*len(batch)), keep.Milliseconds(), clients, boolArg(take))
	for _, b := range batch {
		keys = append(keys, b.Keys.all()...)
		args = append(args, b.Waiter.member(), b.Limit)
	}
	v, err := beatPermitsScript.run(ctx, rdb, keys, args...)
	return readBeats(beatPermitsScript, v, err, len(batch), func(*reply) int64 { return 0 }, (*reply).permitQueueState)
}

// KeepPermitParams are the arguments of [KeepPermit].
type KeepPermitParams struct {
	Keys        SemaphoreKeys
	Acquisition string
	Units       int
	Kept        string // as in [KeepParams]
	Number      int
	For         time.Duration
	VoidAfter   Time
	Retention   time.Duration // limit and permits; 0: for ever
}

// KeepPermit ends an acquisition, and has the server keep its permit for a time. One round trip.
func KeepPermit(ctx context.Context, rdb Redis, p KeepPermitParams) (KeepReply, error) {
	v, err := keepPermitScript.run(ctx, rdb, []any{p.Keys.Permits, p.Keys.Holders},
		p.Acquisition, p.Kept, p.Number, p.Units, p.For.Milliseconds(), int64(p.VoidAfter), p.Retention.Milliseconds())
	return readKept(keepPermitScript, v, err)
}

// ReleasePermitsParams are the arguments of [ReleasePermits].
type ReleasePermitsParams struct {
	Keys           SemaphoreKeys
	Waiter         Waiter
	Retention      time.Duration // limit and permits; 0: for ever
	ClientChannels string
}

// ReleasePermitsReply is what [ReleasePermits] did: Freed, LeftQueue, or
// Gone.
type ReleasePermitsReply struct {
	Status Status
	// More says that there may be waiters for what is free, after dead ones or
	// more than one call serves: call again.
	More bool
	// IsSplit says that no node had all keys, so the call only freed the units. The description
	// stays, and the waiters learn of the units by their next heartbeats: call again when the slot
	// has moved.
	IsSplit bool
}

// ReleasePermits releases a permit, whose units go to the next waiters, or the
// place in the queue. One round trip.
//
// If no node has all keys, because the slot migrates, ReleasePermits only frees units: see IsSplit.
func ReleasePermits(ctx context.Context, rdb Redis, p ReleasePermitsParams) (ReleasePermitsReply, error) {
	v, err := releasePermitsScript.run(ctx, rdb, p.Keys.all(), p.Waiter.member(), p.Retention.Milliseconds(), p.ClientChannels)
	var out ReleasePermitsReply
	if IsSplit(ctx, err) {
		freed, freeErr := releasePermitsScript.run(ctx, rdb, p.Keys.all()[:1], p.Waiter.member(), p.Retention.Milliseconds(), p.ClientChannels)
		if reply := readReply(releasePermitsScript, freed, freeErr); reply.int(0) == 1 || isUnclear(freeErr) {
			v, err, out.IsSplit = freed, freeErr, true
		}
	}
	r := readReply(releasePermitsScript, v, err)
	out.More = r.int(1) == 1
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

// PermitRenewal is one permit in a call of [RenewPermits].
type PermitRenewal struct {
	Permits, Holders string // keys
	Acquisition      string
	Units            int
	Lease            time.Duration // whole milliseconds; 0 only looks
}

// RenewPermits extends many permits of one slot, and only those that their
// acquisitions still have. One round trip.
func RenewPermits(ctx context.Context, rdb Redis, keep time.Duration, batch []PermitRenewal) ([]RenewAnswer, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	keys := make([]any, 0, 2*len(batch))
	args := append(make([]any, 0, 1+3*len(batch)), keep.Milliseconds())
	for _, p := range batch {
		keys = append(keys, p.Permits, p.Holders)
		args = append(args, p.Acquisition, p.Units, p.Lease.Milliseconds())
	}
	v, err := renewPermitsScript.run(ctx, rdb, keys, args...)
	return readRenewals(renewPermitsScript, v, err, len(batch))
}

// ResizeParams are the arguments of [Resize].
type ResizeParams struct {
	Keys      SemaphoreKeys
	Limit     int
	Declared  int // what programs say; they go on
	VoidAfter Time
	// Stamp orders resizes: one with an earlier stamp than the last changes nothing. It
	// is above 0, and the same in all commands of one resize.
	Stamp          Time
	Retention      time.Duration // limit and permits; 0: for ever
	ClientChannels string
}

// ResizeReply is what [Resize] did: Freed, with the limit before, 0 if none was
// known; Superseded, with the stamp of the last resize; or Void.
type ResizeReply struct {
	Status Status
	Before int
	More   bool // there may be more waiters to serve: call again
	Stamp  Time
	Now    Time
}

// Resize sets the limit, and serves waiters within it, unless another resize has a
// later stamp. One round trip.
func Resize(ctx context.Context, rdb Redis, p ResizeParams) (ResizeReply, error) {
	v, err := resizeScript.run(ctx, rdb, p.Keys.all(), p.Limit, p.Declared, int64(p.VoidAfter), int64(p.Stamp), p.Retention.Milliseconds(), p.ClientChannels)
	r := readReply(resizeScript, v, err)
	var out ResizeReply
	switch r.int(0) {
	case 1:
		out = ResizeReply{Status: Freed, Before: int(r.int(1)), More: r.int(2) == 1, Now: r.time(3)}
	case 0:
		out = ResizeReply{Status: Superseded, Stamp: r.time(1), Now: r.time(2)}
	case -2:
		out = ResizeReply{Status: Void, Now: r.time(1)}
	default:
		r.unexpected()
	}
	return out, r.err
}

// ForceReleasePermits ends one permit, whoever has it. It returns how many units
// it had, 0 for none, and whether there may be more waiters to serve: call again.
// One round trip.
func ForceReleasePermits(ctx context.Context, rdb Redis, keys SemaphoreKeys, acquisition string, keep time.Duration, clients string) (units int, more bool, err error) {
	v, err := forcePermitsScript.run(ctx, rdb, keys.all(), acquisition, keep.Milliseconds(), clients)
	r := readReply(forcePermitsScript, v, err)
	if status := r.int(0); status != 0 && status != 1 {
		r.unexpected()
	}
	return int(r.int(1)), r.int(2) == 1, r.err
}

// HeldPermit is one permit in an [InspectPermitsReply].
type HeldPermit struct {
	Acquisition string
	Units       int           // those of the entries that were read, where its description is gone
	Remaining   time.Duration // of the lease
	Since       Time          // 0: not known
	Description string
}

// InspectPermitsReply is the state of one semaphore.
type InspectPermitsReply struct {
	Now             Time
	Limit, Declared int // 0: none is known
	InUse, Waiting  int
	Held            []HeldPermit
}

// InspectPermits reads the state of one semaphore, and who has its permits, as far
// as show entries tell. One round trip.
func InspectPermits(ctx context.Context, rdb Redis, keys SemaphoreKeys, show int) (InspectPermitsReply, error) {
	v, err := inspectPermitsScript.run(ctx, rdb, keys.all(), show)
	r := readReply(inspectPermitsScript, v, err)
	out := InspectPermitsReply{
		Now: r.time(0), Limit: int(r.int(1)), Declared: int(r.int(2)), InUse: int(r.int(3)), Waiting: int(r.int(4)),
	}
	found := map[string]int{}      // a permit of several entries
	described := map[string]bool{} // its description has its units: not all of its entries may be shown
	for i := 5; r.err == nil && i < len(r.fields); i += 4 {
		id := r.text(i)
		at, known := found[id]
		if !known {
			at = len(out.Held)
			found[id] = at
			since, units, about := readDescription(r.text(i + 3))
			out.Held = append(out.Held, HeldPermit{Acquisition: id, Units: units, Remaining: r.millis(i + 2), Since: since, Description: about})
			described[id] = units > 0
		}
		if units := int(r.int(i + 1)); !described[id] {
			out.Held[at].Units += units
		}
	}
	return out, r.err
}

// readDescription reads a description as it is stored.
func readDescription(stored string) (since Time, units int, about string) {
	part := strings.SplitN(stored, " ", 3)
	if len(part) < 3 {
		return 0, 0, ""
	}
	at, _ := strconv.ParseInt(part[0], 10, 64)
	if n, err := strconv.ParseInt(part[1], 10, 32); err == nil && n > 0 {
		units = int(n)
	}
	return Time(at), units, part[2]
}
