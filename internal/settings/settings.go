// Package settings contains the settings of a lock, their defaults, and the relations that must
// hold between them.
package settings

import (
	"time"

	"github.com/redlatch/redlatch/lockerr"
)

// MinLease is the shortest lease. Shorter leases would often expire, because of the pauses of an
// ordinary process and an ordinary network.
const MinLease = 100 * time.Millisecond

// minInterval is the shortest time between two commands that a setting may ask for: a tenth of
// the shortest lease. That allows a hundred commands a second for each lock. It keeps mistaken
// units (milliseconds taken for nanoseconds) from flooding the server.
const minInterval = 10 * time.Millisecond

// minWait is the shortest wait timeout: a shorter one is usually a mistaken unit.
const minWait = time.Millisecond

// Lock contains the settings of one lock.
type Lock struct {
	Lease             time.Duration // how long Redis keeps the lock without a renewal
	RenewInterval     time.Duration // between renewals, or between checks when Renew is off
	DefaultInterval   bool          // RenewInterval is a third of the lease, because it was not set
	Renew             bool          // the watchdog extends the lease
	MaxHold           time.Duration // the watchdog stops extending the lease after it; 0: never
	ProgressTimeout   time.Duration // the watchdog stops extending the lease when the work has reported no progress for so long; 0: never
	PollInterval      time.Duration // a plain waiter asks again at least this often
	LocalHandoffTime  time.Duration // the goroutines of one client hand the lock on for so long
	SelfDeadlockAfter time.Duration // a wait of this length logs the self-deadlock warning; 0: never
	WaitTimeout       time.Duration // a call gives up after it; 0: when its context ends

	Replicas       int           // so many must acknowledge a grant
	ReplicaTimeout time.Duration // for so long the server waits for them; unused without Replicas

	Err error // an error from before there were settings; Complete returns it

	// Of queues.
	Heartbeat time.Duration // how long a waiter counts as alive without another heartbeat

	// Notice calls the wait callback. It gets the id of the waiter, who is in the way, and whether
	// the waiter queues again. nil: there is no callback.
	Notice func(id string, refusal lockerr.NotAcquiredError, requeued bool)
}

// Default contains the settings of a lock without options.
var Default = Lock{
	Lease:             30 * time.Second,
	DefaultInterval:   true,
	Renew:             true,
	PollInterval:      2 * time.Second,
	LocalHandoffTime:  10 * time.Millisecond,
	SelfDeadlockAfter: 10 * time.Second,

	Heartbeat: 5 * time.Second,
}

// ErrNoClient is the error of a lock that no client made.
var ErrNoClient = &lockerr.ConfigError{Setting: "client", Reason: "must be made by redlatch.New, and locks by its methods"}

// ErrNilOption is the error of an option that is nil.
var ErrNilOption = &lockerr.ConfigError{Setting: "option", Reason: "must not be nil"}

// Complete fills in settings that follow from others, and checks all of them. The error is a
// *lockerr.ConfigError.
func (l *Lock) Complete() error {
	if l.Err != nil {
		return l.Err
	}
	if l.DefaultInterval && l.RenewInterval != l.Lease/3 { // locks share settings that are complete
		l.RenewInterval = l.Lease / 3
	}
	switch {
	case l.Lease < MinLease:
		return bad("lease", "WithLease", l.Lease, "must be at least "+MinLease.String())
	case l.Lease%time.Millisecond != 0:
		return bad("lease", "WithLease", l.Lease, "must be whole milliseconds, the unit of Redis")
	case l.Lease > maxLease:
		return bad("lease", "WithLease", l.Lease, "must not be longer than "+maxLease.String())
	case l.RenewInterval < minInterval:
		return bad("renewal interval", "WithRenewInterval", l.RenewInterval, "must be at least "+minInterval.String())
	case l.RenewInterval > l.Lease/2:
		return bad("renewal interval", "WithRenewInterval", l.RenewInterval, "must be at most half the lease of "+l.Lease.String()+", so that one failed renewal can be made good")
	case l.MaxHold != 0 && l.MaxHold < MinLease:
		return bad("maximum hold time", "WithMaxHold", l.MaxHold, "must be 0 or at least "+MinLease.String())
	case l.ProgressTimeout != 0 && l.ProgressTimeout < MinLease:
		return bad("progress timeout", "WithProgressTimeout", l.ProgressTimeout, "must be 0 or at least "+MinLease.String())
	case l.PollInterval < minInterval:
		return bad("poll bound", "WithPollInterval", l.PollInterval, "must be at least "+minInterval.String())
	case l.LocalHandoffTime < 0:
		return bad("local handoff time", "WithLocalHandoffTime", l.LocalHandoffTime, "must not be negative")
	case l.Heartbeat < MinLease:
		return bad("heartbeat", "WithHeartbeat", l.Heartbeat, "must be at least "+MinLease.String())
	case l.Heartbeat%time.Millisecond != 0:
		return bad("heartbeat", "WithHeartbeat", l.Heartbeat, "must be whole milliseconds, the unit of Redis")
	case l.Heartbeat > maxHeartbeat:
		return bad("heartbeat", "WithHeartbeat", l.Heartbeat, "must not be longer than "+maxHeartbeat.String())
	case l.SelfDeadlockAfter != 0 && l.SelfDeadlockAfter < minInterval:
		return bad("self-deadlock warning", "WithSelfDeadlockWarning", l.SelfDeadlockAfter, "must be 0 or at least "+minInterval.String())
	case l.WaitTimeout != 0 && l.WaitTimeout < minWait:
		return bad("wait timeout", "WithWaitTimeout", l.WaitTimeout, "must be 0 or at least "+minWait.String())
	case l.Replicas < 0:
		return bad("number of replicas", "WithReplicas", l.Replicas, "must not be negative")
	case l.Replicas == 0: // the timeout means nothing
	case l.ReplicaTimeout < time.Millisecond || l.ReplicaTimeout%time.Millisecond != 0:
		return bad("replica timeout", "WithReplicas", l.ReplicaTimeout, "must be whole milliseconds, the unit of Redis, and at least one")
	case l.ReplicaTimeout > l.Lease/2:
		return bad("replica timeout", "WithReplicas", l.ReplicaTimeout, "must be at most half the lease of "+l.Lease.String()+", so that the lease outlasts it")
	}
	return nil
}

// CheckKeep checks for how long Redis is to keep a lock without a holder. The error is a
// *lockerr.ConfigError.
func CheckKeep(d time.Duration) error {
	if d < time.Millisecond || d%time.Millisecond != 0 || d > maxLease {
		return bad("time to keep the lock", "", d, "must be whole milliseconds, at least 1 ms and not longer than "+maxLease.String())
	}
	return nil
}

// MaxExtension returns for how long after the grant the watchdog extends the lease at first. 0
// means for ever.
func (l *Lock) MaxExtension() time.Duration {
	if l.MaxHold == 0 || l.ProgressTimeout == 0 {
		return max(l.MaxHold, l.ProgressTimeout)
	}
	return min(l.MaxHold, l.ProgressTimeout)
}

func bad(setting, option string, value any, reason string) error {
	return &lockerr.ConfigError{Setting: setting, Option: option, Value: value, Reason: reason}
}

// maxLease catches mistaken units, such as nanoseconds taken for milliseconds, which would make a
// lock that outlives everybody. It also keeps all sums inside an int64.
const maxLease = 365 * 24 * time.Hour

// maxHeartbeat catches them too: crashed waiters would block a queue for days.
const maxHeartbeat = 24 * time.Hour

// Margin returns the time by which trust ends before the lease. It allows for timers that fire late
// and clocks that drift.
func (l *Lock) Margin() time.Duration { return Margin(l.Lease) }

// Margin returns the margin of a lease of that length. A thousandth of the lease is for drift. NTP
// slews a clock by 500 millionths at most, and two clocks may be slewed in opposite directions.
func Margin(lease time.Duration) time.Duration {
	return min(max(lease/10, 10*time.Millisecond), max(time.Second, lease/1000))
}

// Window returns how long a grant of the whole lease is certain to stand.
func (l *Lock) Window() time.Duration { return l.Lease - l.Margin() }

// QueueWindow returns the same for a request that may get a grant or a place in a queue.
func (l *Lock) QueueWindow() time.Duration {
	d := min(l.Heartbeat, l.Lease)
	return d - Margin(d)
}

// AttemptTimeout returns the longest time that one command may go unanswered before the client
// sends it again on another connection. A grant that is under way stays valid for as long. This
// bounds the life of a grant that nobody waits for any more. Over a link that is known to be slow,
// both times are longer.
func (l *Lock) AttemptTimeout() time.Duration {
	return min(max(l.Lease/3, 50*time.Millisecond), DefaultAttemptTimeout)
}

// DefaultAttemptTimeout is the limit of commands that belong to no lease.
const DefaultAttemptTimeout = 2 * time.Second
