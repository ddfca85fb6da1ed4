package telemetry

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lockerr"
)

// Config configures a Tally.
type Config struct {
	// NameLabel maps names of locks to the values of a label. If it is nil, there is no such label.
	NameLabel func(name string) string
	// QueueTimeout bounds how long a collection waits for queues.
	QueueTimeout time.Duration
}

// DefaultQueueTimeout is below the shortest time that collectors usually wait.
const DefaultQueueTimeout = time.Second

// Tally turns events into updates, and counts what is there now. Its methods may be called
// concurrently.
type Tally struct {
	names  names
	state  state
	queues queues
}

// NewTally returns a Tally. The error is a *lockerr.ConfigError.
func NewTally(c Config) (*Tally, error) {
	if c.QueueTimeout < time.Millisecond {
		return nil, &lockerr.ConfigError{Setting: "queue timeout", Option: "WithQueueTimeout", Value: c.QueueTimeout, Reason: "must be at least 1ms"}
	}
	return &Tally{names: names{label: c.NameLabel}, queues: queues{timeout: c.QueueTimeout}}, nil
}

// HasNames reports whether names have labels.
func (t *Tally) HasNames() bool { return t.names.label != nil }

// Labels returns the keys of the labels of an instrument, with that of the name if it has one.
func (t *Tally) Labels(id ID) []string {
	labels := slices.Clone(Instruments[id].Labels)
	if t.HasNames() && Instruments[id].IsNamed {
		labels = append(labels, NameKey)
	}
	return labels
}

// Updates counts an event, and appends the updates of counters and histograms. At most MaxUpdates
// are appended.
func (t *Tally) Updates(to []Update, e event.Event) []Update {
	label := ""
	if t.HasNames() {
		label = t.names.of(e.Name)
	}
	t.state.observe(e, label)
	first := len(to)
	to = appendUpdates(to, e)
	for i := first; i < len(to); i++ {
		t.setName(&to[i], label)
	}
	return to
}

// setName adds the label of the name, if the instrument has one.
func (t *Tally) setName(u *Update, label string) {
	if t.HasNames() && Instruments[u.Instrument].IsNamed {
		u.labels[u.n] = label
		u.n++
	}
}

// Zeros returns the updates of [Zeros]. With labels for names there are none, because the names are
// not known.
func (t *Tally) Zeros() (zeros []Update) {
	for _, u := range Zeros() {
		if !t.HasNames() || !Instruments[u.Instrument].IsNamed {
			zeros = append(zeros, u)
		}
	}
	return zeros
}

// WatchQueue makes Read read a queue each time. The error is a *lockerr.ConfigError.
func (t *Tally) WatchQueue(primitive event.Primitive, name string, read ReadQueue) error {
	return t.queues.add(primitive, name, read)
}

// Read returns the values of all gauges, and of QueueReadFailures. It reads the queues that are
// watched, and blocks for the queue timeout at most.
func (t *Tally) Read(ctx context.Context) []Update {
	values := t.queues.readAll(ctx)
	total, oldest := t.state.read(time.Now())
	for p := event.Mutex; p <= event.Semaphore; p++ {
		// Of two events at nearly the same time, the later one may be observed first. So a count
		// may be below 0 for an instant.
		values = append(values,
			NewUpdate(Waiting, float64(max(total[p].waiting, 0)), p.String()),
			NewUpdate(Held, float64(max(total[p].held, 0)), p.String()))
	}
	for _, o := range oldest {
		u := NewUpdate(OldestHoldAge, o.age.Seconds(), o.primitive.String())
		t.setName(&u, o.label)
		values = append(values, u)
	}
	return values
}
