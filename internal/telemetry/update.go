package telemetry

import (
	"strconv"

	"github.com/redlatch/redlatch/event"
)

// maxLabels is the largest number of labels of an instrument, with that of the name.
const maxLabels = 4

// Update is a change of a counter or a histogram, or the value of a gauge.
type Update struct {
	Instrument ID
	Value      float64
	labels     [maxLabels]string
	n          int
}

// Labels returns the values of the labels, in the order of [Tally.Labels].
func (u *Update) Labels() []string { return u.labels[:u.n] }

// NewUpdate returns an update. It has as many labels as the instrument.
func NewUpdate(id ID, value float64, labels ...string) Update {
	u := Update{Instrument: id, Value: value}
	u.n = copy(u.labels[:], labels)
	return u
}

// MaxUpdates is the largest number of updates of one event.
const MaxUpdates = 2

// appendUpdates appends what an event changes, without the labels of names.
func appendUpdates(to []Update, e event.Event) []Update {
	primitive := primitiveOf(e)
	switch e.Kind {
	case event.WaitEnded:
		return appendWait(to, e)
	case event.Released:
		to = append(to, NewUpdate(HoldDuration, e.Duration.Seconds(), primitive, released))
		if e.Err != nil {
			to = append(to, NewUpdate(UnconfirmedReleases, 1, primitive, ErrorType(e.Err)))
		}
	case event.Lost:
		to = append(to, NewUpdate(HoldDuration, e.Duration.Seconds(), primitive, lost), NewUpdate(Losses, 1, primitive, e.Result.String()))
	case event.Leaked:
		to = append(to, NewUpdate(LeakedHolds, 1, primitive))
	case event.LateGrant:
		to = append(to, NewUpdate(LateGrants, 1, primitive))
	case event.Woken:
		to = append(to, NewUpdate(Wakeups, 1, primitive, e.Result.String()))
	case event.Retried:
		to = append(to, NewUpdate(Retries, 1, primitive, ErrorType(e.Err)))
	case event.Renewed:
		lease := leaseOf(e)
		to = append(to, NewUpdate(Renewals, float64(e.Count), lease, e.Result.String()), NewUpdate(RenewalDuration, e.Duration.Seconds(), lease, e.Result.String()))
	case event.Disconnected:
		to = append(to, NewUpdate(PubSubDisconnects, 1, ErrorType(e.Err)))
	case event.Dropped:
		to = append(to, NewUpdate(DroppedEvents, float64(e.Count), primitive))
	}
	return to
}

// Values of labels that are no words of package event.
const (
	released      = "released"
	lost          = "lost"
	leaseOfLock   = "lock"
	leaseOfPermit = "permit"
	noPrimitive   = "none"
)

func appendWait(to []Update, e event.Event) []Update {
	primitive := primitiveOf(e)
	if e.Result == event.Acquired && e.Source == event.Reentry {
		return append(to, NewUpdate(Reentries, 1, primitive))
	}
	to = append(to, NewUpdate(WaitDuration, e.Duration.Seconds(), primitive, e.Result.String(), strconv.FormatBool(e.Try)))
	if e.Result == event.Acquired {
		to = append(to, NewUpdate(Grants, 1, primitive, e.Source.String()))
	}
	return to
}

// primitiveOf returns the label of an event. An operation of a client that belongs to no primitive
// has none.
func primitiveOf(e event.Event) string {
	if e.Primitive == 0 {
		return noPrimitive
	}
	return e.Primitive.String()
}

// leaseOf returns whose leases were renewed. One command renews those of both kinds of mutexes.
func leaseOf(e event.Event) string {
	if e.Primitive == event.Semaphore {
		return leaseOfPermit
	}
	return leaseOfLock
}

// Zeros returns updates by 0 of counters that say that something is wrong. With them, the first
// loss is an increase, and not a series that begins with 1.
func Zeros() (zeros []Update) {
	for p := event.Mutex; p <= event.Semaphore; p++ {
		for reason := event.Unconfirmed; reason <= event.NotRenewed; reason++ {
			zeros = append(zeros, NewUpdate(Losses, 0, p.String(), reason.String()))
		}
		zeros = append(zeros, NewUpdate(LeakedHolds, 0, p.String()), NewUpdate(LateGrants, 0, p.String()), NewUpdate(DroppedEvents, 0, p.String()))
	}
	for _, lease := range []string{leaseOfLock, leaseOfPermit} {
		for result := event.Extended; result <= event.Failed; result++ {
			zeros = append(zeros, NewUpdate(Renewals, 0, lease, result.String()))
		}
		zeros = append(zeros, NewUpdate(Renewals, 0, lease, event.Gone.String()))
	}
	return append(zeros, NewUpdate(DroppedEvents, 0, noPrimitive))
}
