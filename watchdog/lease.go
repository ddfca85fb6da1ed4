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
	// TrustEnded says that no confirmation came in time, or that none was asked for (renewal off,
	// or the lease was abandoned).
	TrustEnded
	// MaxHoldReached says the lease ran out after its maximum hold time.
	MaxHoldReached
)

// String returns the reason in words.
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

// LossHandler is notified of the loss of a lease; see [Spec].
type LossHandler interface{ OnLost(r Reason) }

// LossFunc is a function as a LossHandler.
type LossFunc func(r Reason)

// OnLost calls f.
func (f LossFunc) OnLost(r Reason) { f(r) }

// Spec says what to watch. The watchdog does not correct its durations: the caller checks that
// Interval + the time a renewal takes + Margin < Lease. Otherwise trust ends between two renewals.
type Spec struct {
	Key      string        // what is leased
	ID       string        // who holds it
	Group    Group         // leases of one group may share a call
	Lease    time.Duration // what the server granted, and what renewals extend to
	Margin   time.Duration // trusted until = sent + lease − margin
	Interval time.Duration // how often to ask, at the latest; must be positive
	Renew    bool          // false: never extended, only looked at

	// MaxHold is how long after Sent the watchdog extends the lease. After that it only looks at
	// the lease, which runs out. 0: no end.
	MaxHold time.Duration

	// Sent is the instant before the command that got the lease was sent, with its monotonic
	// reading: a plain time.Now().
	Sent time.Time

	// OnLost is notified if the lease is lost. Its method runs in a goroutine of its own and with
	// no lock held: it may block, and may call Stop and Close. It is called once, unless Stop or
	// Close came first, and possibly before Watch returns. nil: nobody is notified.
	//
	// OnLost must not refer to a handle whose garbage collection is to lead to StopRenewing: the
	// watchdog keeps OnLost, and OnLost would keep the handle.
	OnLost LossHandler
}

type state uint8

const (
	idle     state = iota // asked for when next is due
	waiting               // due, waits in its bucket for a call
	inCall                // in a call in flight
	lost                  // over, OnLost not called yet
	notified              // over, OnLost called
	stopped               // over, and nobody is notified
)

// watched reports whether the watchdog still does anything for the lease.
func (s state) watched() bool { return s <= inCall }

// Lease is one lease watched. Its methods may be called from any goroutine.
type Lease struct {
	w      *Watchdog
	bucket *bucket

	// Fixed by Watch.
	key, id string
	margin  time.Duration
	onLost  LossHandler

	// Guarded by w.mu.
	maxHold    int64 // instant it is over, or never
	lease      time.Duration
	trust      clockReading
	extendedAt int64         // when the command was sent that granted it, or the last renewal that extended it
	next       int64         // when it is to be asked for
	noCalls    chan struct{} // closed when calls is 0; made by Stop when needed
	calls      int32         // calls that name it and have not returned; includes those given up
	index      int32         // in its bucket's heap
	state      state
	tries      uint8 // attempts without answer since the last answer
	renew      bool  // fixed by Watch; else it is only looked at
	again      bool  // RenewNow was called while it was in a call
	abandoned  bool
	reason     Reason
}

func (l *Lease) setIndex(i int) { l.index = int32(i) }

// due returns when the loop must look at l: for the next renewal or the end of trust. While a
// renewal is in flight, only the end of trust counts.
func (l *Lease) due() int64 {
	if l.state == idle {
		return min(l.next, l.trust.mono)
	}
	return l.trust.mono
}

// endsByMaxHold reports whether the lease runs out because it was held long enough.
func (l *Lease) endsByMaxHold(now int64) bool { return l.extended() && now >= l.maxHold }

// extended reports whether the lease is to be extended until its maximum hold time, or only looked
// at.
func (l *Lease) extended() bool { return l.renew && !l.abandoned }

// renewal returns what to ask for now.
func (l *Lease) renewal(now int64) Renewal {
	r := Renewal{Key: l.key, ID: l.id, Extended: time.Duration(l.extendedAt), Asked: time.Duration(now)}
	if l.extended() && now < l.maxHold {
		r.Lease = l.lease
	}
	return r
}

// prove moves trust to what a command sent at the given instant got, unless that is earlier:
// answers may overtake one another. At the same instant the later proof counts, because the wall
// clock may have been set in between. A proof that changed nothing would make the watchdog ask
// again immediately, for ever.
func (l *Lease) prove(sent clockReading, lease time.Duration) {
	if t := sent.add(lease - l.margin); t.mono >= l.trust.mono {
		l.trust = t
	}
}

// proveRenewal is prove for a renewal.
func (l *Lease) proveRenewal(sent clockReading, lease time.Duration) {
	l.extendedAt = max(l.extendedAt, sent.mono)
	l.prove(sent, lease)
}

// renewByWallClock makes l due no later than the wall clock calls its trust over. If the clocks are
// in step, that is far behind the next renewal.
func (l *Lease) renewByWallClock(offset int64) {
	l.next = min(l.next, l.trust.wall-offset)
}

// Stop ends renewal and waits until no call that names the lease is in flight, including those
// given up, but at most until ctx ends. If there is no such call, Stop does not block.
//
// Stop reports whether it came before OnLost. true means that OnLost has not been called and will
// not be, whatever the server says from now on. A renewal that receives "gone" after Stop began has
// seen our own release. false means that OnLost was called: it may still run, or may be about to
// begin. Stop does not wait for it, so OnLost may call Stop.
//
// If ctx ends first, a call may still be in flight; its answer is ignored. A second Stop is
// allowed.
func (l *Lease) Stop(ctx context.Context) bool {
	kept, quiet := l.BeginStop()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
		}
	}
	return kept
}

// BeginStop does what Stop does, but does not block. If calls that name the lease are in flight,
// quiet is closed when the last of them has ended. If there are none, quiet is nil.
func (l *Lease) BeginStop() (kept bool, quiet <-chan struct{}) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.state.watched() {
		l.w.drop(l)
	}
	if l.state != notified {
		l.state = stopped
	}
	kept = l.state == stopped
	if l.calls == 0 {
		return kept, nil
	}
	if l.noCalls == nil {
		l.noCalls = make(chan struct{})
	}
	return kept, l.noCalls
}

// MarkRenewed says that another command (a re-entry), sent at that instant, proved the lease ours
// and extended it to lease. Trust moves if that makes it later. Renewals extend to the larger of
// this lease and the one before; neither ever shrinks. If the lease is over, MarkRenewed does
// nothing.
func (l *Lease) MarkRenewed(sent time.Time, lease time.Duration) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	s := l.w.at(sent)
	if !l.state.watched() {
		return
	}
	l.lease = max(l.lease, lease)
	// The heap is left alone: trust only moves away. If the loop looks too early, it puts the lease
	// where it belongs.
	l.prove(s, lease)
}

// MarkGone says that, by the answer to another command, the server no longer has the lease. Trust
// ends now, and the watchdog asks nothing any more. A late copy of the acquire could bring the
// lease back, and renewing would keep it. OnLost is not called, because the caller already knows.
// MarkGone does not block.
func (l *Lease) MarkGone() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	now := l.w.now()
	l.trust.mono = min(l.trust.mono, now.mono)
	if l.state.watched() {
		l.w.drop(l)
		l.state = stopped
	}
}

// StopRenewing stops extending the lease, because its handle became garbage. The lease runs out,
// and OnLost is called with [TrustEnded], or immediately if the server says that it is gone. A
// renewal in flight may still extend it once. StopRenewing does not block.
func (l *Lease) StopRenewing() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.abandoned = true
}

// ResumeRenewing undoes [Lease.StopRenewing], because the owner came back. The watchdog extends the
// lease again as its Spec says, from the next renewal on. A lost lease stays lost. ResumeRenewing
// does not block.
func (l *Lease) ResumeRenewing() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.abandoned = false
}

// RenewUntil sets the time until which the watchdog extends the lease, in place of Spec.MaxHold. If
// the former time was over, the watchdog renews the lease now. A lease that is over stays so.
// RenewUntil does not block.
func (l *Lease) RenewUntil(t time.Time) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if !l.state.watched() {
		return
	}
	now, until := l.w.now().mono, int64(t.Sub(l.w.base))
	overdue := now >= l.maxHold && now < until
	l.maxHold = until
	if overdue {
		l.next, l.again = min(l.next, now), l.state == inCall
		l.w.replace(l)
		l.w.wakeLoop(l.bucket.leases.first())
	}
}

// MaxHoldOver reports whether the time is over until which the watchdog extends the lease.
func (l *Lease) MaxHoldOver() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.now().mono >= l.maxHold
}

// TrustedUntil returns when trust ends by what is known now. If the server said that the lease is
// gone, trust ended when that answer arrived.
func (l *Lease) TrustedUntil() time.Time {
	l.w.mu.Lock()
	until := l.trust.mono
	l.w.mu.Unlock()
	// Counted from now, not from the start of the watchdog, so that the wall reading is also right
	// after steps of the wall clock.
	now := time.Now()
	return now.Add(time.Duration(until) - now.Sub(l.w.base))
}

// Trusted reports whether now is before the end of trust, on the monotonic and on the wall clock.
// It says nothing about a moment later. After a jump of the wall clock it is false until the next
// renewal, which is made immediately. For a lease that is only looked at, it stays false until the
// lease ends.
func (l *Lease) Trusted() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	now := l.w.now()
	return now.mono < l.trust.mono && now.wall < l.trust.wall
}
