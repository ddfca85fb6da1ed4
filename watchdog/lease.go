package watchdog

import (
	"context"
	"time"
)

// Reason is why a lease is lost.
type Reason int8

const (
	// GoneOnServer says the server answered that the lease is not ours.
	GoneOnServer Reason = iota + 1
	// TrustEnded says no confirmation came in time, or none was asked for
	// (renewal off, or the lease was abandoned).
	TrustEnded
	// MaxHoldReached says the lease ran out after its maximum hold time.
	MaxHoldReached
)

// String says the reason in words.
func (r Reason) String() string {
	switch r {
	case GoneOnServer:
		return "the server says it is not ours"
	case TrustEnded:
		return "no confirmation in time"
	case MaxHoldReached:
		return "the maximum hold time is over"
	}
	return "unknown reason"
}

// Spec says what to watch. Its durations are not corrected: whoever makes it
// checks that Every + the time a renewal takes + Margin < Lease, else trust
// ends between two renewals.
type Spec struct {
	Key    string        // what is leased
	ID     string        // who holds it
	Group  int           // leases of one group may share a call (hash slot)
	Lease  time.Duration // what the server granted, and what renewals extend to
	Margin time.Duration // trusted until = sent + lease − margin
	Every  time.Duration // how often to ask, at the latest; must be positive
	Renew  bool          // false: never extended, only looked at

	// MaxHold is how long after Sent the lease is extended; from then on it is
	// only looked at, and runs out. 0: no end.
	MaxHold time.Duration

	// Sent is the instant before the command that got the lease was sent, with
	// its monotonic reading: a plain time.Now().
	Sent time.Time

	// Ended is told that the lease is lost, in a goroutine of its own and with
	// no lock held: it may block, and may call Stop and Close. It is called
	// once, unless Stop or Close came first, and possibly before Watch returns.
	// nil: nobody is told.
	//
	// It must not refer to a handle whose garbage collection is to lead to
	// Abandon: the watchdog keeps Ended, and Ended would keep the handle.
	Ended func(Reason)
}

type state uint8

const (
	idle    state = iota // asked for when next is due
	waiting              // due, in its lane's line for a call
	asked                // in a call under way
	lost                 // over, Ended not called yet
	told                 // over, Ended called
	stopped              // over, and nobody is told
)

// watched says whether the watchdog still does anything for the lease.
func (s state) watched() bool { return s <= asked }

// Lease is one lease watched. Its methods may be called from any goroutine.
type Lease struct {
	w    *Watchdog
	lane *lane

	// Fixed by Watch.
	key, id string
	margin  time.Duration
	maxHold int64 // instant it is over, or never
	ended   func(Reason)

	// Guarded by w.mu.
	lease     time.Duration
	trust     stamp
	next      int64         // when it is to be asked for
	quiet     chan struct{} // closed when calls is 0; made by Stop when needed
	calls     int32         // calls that name it and have not returned, given up ones included
	place     int32         // in its lane's heap
	state     state
	tries     uint8 // questions without answer since the last answer
	renew     bool  // fixed by Watch; else it is only looked at
	abandoned bool
	reason    Reason
}

func (l *Lease) placed(i int) { l.place = int32(i) }

// due is when the loop must look at l: for the next question or the end of
// trust. While a question is open, only the end of trust counts.
func (l *Lease) due() int64 {
	if l.state == idle {
		return min(l.next, l.trust.mono)
	}
	return l.trust.mono
}

// maxHoldOver says whether the lease runs out because it was held long enough.
func (l *Lease) maxHoldOver(now int64) bool { return l.extended() && now >= l.maxHold }

// extended says whether the lease is to be extended until its maximum hold
// time, or only looked at.
func (l *Lease) extended() bool { return l.renew && !l.abandoned }

// request is what to ask for now.
func (l *Lease) request(now int64) Request {
	r := Request{Key: l.key, ID: l.id}
	if l.extended() && now < l.maxHold {
		r.Lease = l.lease
	}
	return r
}

// prove moves trust to what a command sent at the given instant got, unless
// that is earlier: answers may overtake one another. At the same instant the
// later proof counts, for the wall clock may have been set in between, and a
// proof that changed nothing would be asked for again at once, for ever.
func (l *Lease) prove(sent stamp, lease time.Duration) {
	if t := sent.add(lease - l.margin); t.mono >= l.trust.mono {
		l.trust = t
	}
}

// hurry has l asked for no later than the wall clock calls its trust over. In
// step with the monotonic clock that is far behind the next question.
func (l *Lease) hurry(offset int64) {
	l.next = min(l.next, l.trust.wall-offset)
}

// Stop ends renewal and waits until no call that names the lease is under way,
// those given up included, at most until ctx ends. Without one it does not
// block. It reports whether it came before Ended: true means that Ended has
// not been called and will not be, whatever the server says from now on; a
// renewal that hears "gone" after Stop began heard of our own release. false
// means that Ended was called: it may still run, or by a hair not have begun.
// Stop does not wait for it, so Ended may call Stop.
//
// When ctx ends first, a call may still be under way; its answer is ignored.
// Twice is fine.
func (l *Lease) Stop(ctx context.Context) bool {
	l.w.mu.Lock()
	if l.state.watched() {
		l.w.drop(l)
	}
	if l.state != told {
		l.state = stopped
	}
	kept := l.state == stopped
	if l.calls > 0 && l.quiet == nil {
		l.quiet = make(chan struct{})
	}
	calls, quiet := l.calls, l.quiet
	l.w.mu.Unlock()

	if calls > 0 {
		select {
		case <-quiet:
		case <-ctx.Done():
		}
	}
	return kept
}

// Confirm says that another command (a re-entry), sent at that instant, proved
// the lease ours and extended it to lease. Trust moves if that makes it later.
// Renewals extend to the larger of this lease and the one before; neither ever
// shrinks. On a lease that is over it does nothing.
func (l *Lease) Confirm(sent time.Time, lease time.Duration) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	s := l.w.at(sent)
	if !l.state.watched() {
		return
	}
	l.lease = max(l.lease, lease)
	// The heap is left alone: trust only moves away, and the loop, when it
	// looks too early, puts the lease where it belongs.
	l.prove(s, lease)
}

// Disprove says that another command heard that the server has the lease no
// more: trust ends now, and nothing is asked any more, for a late copy of the
// acquire could bring the lease back, and renewing would keep it. Ended is not
// called: whoever heard it knows. It does not block.
func (l *Lease) Disprove() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	now := l.w.now()
	l.trust.mono = min(l.trust.mono, now.mono)
	if l.state.watched() {
		l.w.drop(l)
		l.state = stopped
	}
}

// Abandon stops extending the lease (its handle became garbage): it runs out,
// and Ended is told [TrustEnded], or at once when the server says it is gone.
// A renewal under way may still extend it once. It does not block.
func (l *Lease) Abandon() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.abandoned = true
}

// Resume undoes [Lease.Abandon]: the owner came back. The lease is extended
// again as its Spec says, from the next time it is asked for. What is lost
// stays lost. It does not block.
func (l *Lease) Resume() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.abandoned = false
}

// TrustedUntil is when trust ends by what is known now. A lease that the
// server called gone ended when that was heard.
func (l *Lease) TrustedUntil() time.Time {
	l.w.mu.Lock()
	until := l.trust.mono
	l.w.mu.Unlock()
	// Counted from now, not from the start of the watchdog, so that the wall
	// reading is right after steps of the wall clock as well.
	now := time.Now()
	return now.Add(time.Duration(until) - now.Sub(l.w.base))
}

// Trusted reports whether now is before the end of trust, on the monotonic and
// on the wall clock. It says nothing about a moment later. After a jump of the
// wall clock it is false until the next renewal, which is made at once, and for
// a lease that is only looked at until the end.
func (l *Lease) Trusted() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	now := l.w.now()
	return now.mono < l.trust.mono && now.wall < l.trust.wall
}
