// Package settings has what a lock can be set to, its defaults, and the
// relations between the values that must hold.
package settings

import (
	"time"

	"github.com/redlatch/redlatch/lockerr"
)

// MinLease is the shortest lease. Below it the pauses of an ordinary process
// and an ordinary network would end leases all the time.
const MinLease = 100 * time.Millisecond

// minInterval is the shortest time between two commands that a setting may ask for: a
// tenth of the shortest lease, and a hundred commands a second for each lock. It keeps a
// slip of units (milliseconds taken for nanoseconds) from flooding the server.
const minInterval = 10 * time.Millisecond

// Lock is the behaviour of one lock.
type Lock struct {
	Lease   time.Duration // how long Redis keeps the lock without a renewal
	Every   time.Duration // between renewals, or between looks when Renew is off
	Third   bool          // Every is a third of the lease, because it was not set
	Renew   bool          // the watchdog extends the lease
	MaxHold time.Duration // after it the lease is not extended any more; 0: no such end
	Poll    time.Duration // a waiter asks again at least this often
	Turns   int           // grants in a row to one process while others may wait
	Suspect time.Duration // a wait this long on a lock of the same client is logged; 0: never

	Err error // what was wrong before there were settings; Complete tells it

	// Of queues.
	Heartbeat time.Duration // how long a waiter is taken for living without a sign of it
	Notice    func(Waiting) // is told how a wait stands; nil: nobody
}

// Waiting is how a wait stands; lock.Waiting says what each field is.
type Waiting struct {
	Name        string
	Position    int
	Length      int
	Holder      string
	Description string
	Since       time.Time
	Remaining   time.Duration
	Again       bool
}

// Default is what a lock is unless told otherwise.
var Default = Lock{
	Lease:   30 * time.Second,
	Third:   true,
	Renew:   true,
	Poll:    2 * time.Second,
	Turns:   8,
	Suspect: 10 * time.Second,

	Heartbeat: 5 * time.Second,
}

// ErrNoClient is the error of a lock that no client made.
var ErrNoClient = &lockerr.ConfigError{What: "client", Why: "must be made by redlatch.New, and locks by its methods"}

// ErrNilOption is the error of an option that is nil.
var ErrNilOption = &lockerr.ConfigError{What: "option", Why: "must not be nil"}

// Complete fills in what follows from other values and checks all of them. The
// error is a *lockerr.ConfigError.
func (s *Lock) Complete() error {
	if s.Err != nil {
		return s.Err
	}
	if s.Third {
		s.Every = s.Lease / 3
	}
	for _, check := range []struct {
		ok    bool
		what  string
		value any
		why   string
	}{
		{s.Lease >= MinLease, "lease", s.Lease, "must be at least " + MinLease.String()},
		{s.Lease%time.Millisecond == 0, "lease", s.Lease, "must be whole milliseconds, the unit of Redis"},
		{s.Lease <= maxLease, "lease", s.Lease, "must not be longer than " + maxLease.String()},
		{s.Every >= minInterval, "renewal interval", s.Every, "must be at least " + minInterval.String()},
		{s.Every <= s.Lease/2, "renewal interval", s.Every, "must be at most half the lease of " + s.Lease.String() + ", so that one failed renewal can be made good"},
		{s.MaxHold == 0 || s.MaxHold >= MinLease, "maximum hold time", s.MaxHold, "must be 0 or at least " + MinLease.String()},
		{s.Poll >= minInterval, "poll bound", s.Poll, "must be at least " + minInterval.String()},
		{s.Turns >= 1, "turns in a row", s.Turns, "must be at least 1"},
		{s.Heartbeat >= MinLease, "heartbeat", s.Heartbeat, "must be at least " + MinLease.String()},
		{s.Heartbeat%time.Millisecond == 0, "heartbeat", s.Heartbeat, "must be whole milliseconds, the unit of Redis"},
		{s.Heartbeat <= maxHeartbeat, "heartbeat", s.Heartbeat, "must not be longer than " + maxHeartbeat.String()},
		{s.Suspect == 0 || s.Suspect >= minInterval, "self-wait warning", s.Suspect, "must be 0 or at least " + minInterval.String()},
	} {
		if !check.ok {
			return &lockerr.ConfigError{What: check.what, Value: check.value, Why: check.why}
		}
	}
	return nil
}

// maxLease keeps a slip of units (nanoseconds taken for milliseconds) from
// making a lock that outlives everybody, and all sums inside an int64.
const maxLease = 365 * 24 * time.Hour

// maxHeartbeat keeps such a slip from letting the dead block a queue for days.
const maxHeartbeat = 24 * time.Hour

// Margin is the distance that trust keeps from the end of the lease: for timers
// that fire late and clocks that drift.
func (s *Lock) Margin() time.Duration { return Margin(s.Lease) }

// Margin is the distance that trust keeps from the end of a lease of that length. A
// thousandth of it is for drift: NTP slews a clock by 500 millionths at most, and two
// clocks may be slewed in opposite directions.
func Margin(lease time.Duration) time.Duration {
	return min(max(lease/10, 10*time.Millisecond), max(time.Second, lease/1000))
}

// Window is how long what a request got, a grant of the whole lease, is sure to stand.
func (s *Lock) Window() time.Duration { return s.Lease - s.Margin() }

// QueueWindow is the same for a request that may get a place in a queue.
func (s *Lock) QueueWindow() time.Duration {
	d := min(s.Heartbeat, s.Lease)
	return d - Margin(d)
}

// CallLimit is the longest that one command may go unanswered before it is sent
// again on another connection. It is also how long a grant stays valid on its
// way, so it bounds the life of a grant that nobody waits for any more.
func (s *Lock) CallLimit() time.Duration {
	return min(max(s.Lease/3, 50*time.Millisecond), DefaultCallLimit)
}

// DefaultCallLimit is the limit of commands that belong to no lease.
const DefaultCallLimit = 2 * time.Second
