package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// ReadQueue reads a queue in Redis, as Queue of a fair mutex or a semaphore does.
type ReadQueue func(ctx context.Context, skip, show int) (waiters []lock.Waiter, length int, err error)

// queues are those that the program has listed.
type queues struct {
	timeout time.Duration

	mu  sync.Mutex
	all []*queue
}

type queue struct {
	primitive event.Primitive
	name      string
	timeout   time.Duration
	read      ReadQueue

	mu       sync.Mutex
	reading  *reading           // in progress, of all collections that wait for it; nil: none
	failures map[string]float64 // by the type of the error
}

// reading is one look at a queue. done is closed when the rest is set.
type reading struct {
	done   chan struct{}
	length int
	oldest time.Duration
	err    error
}

// add adds a queue. It refuses one that is there already, because two would have the same series.
func (q *queues) add(primitive event.Primitive, name string, read ReadQueue) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	same := func(other *queue) bool { return other.primitive == primitive && other.name == name }
	switch {
	case name == "" || read == nil:
		return &lockerr.ConfigError{Setting: "queue", Value: name, Reason: "must be of a lock that redlatch.New's client made"}
	case slices.ContainsFunc(q.all, same):
		return &lockerr.ConfigError{Setting: "queue", Value: name, Reason: "is watched already"}
	}
	q.all = append(q.all, &queue{primitive: primitive, name: name, timeout: q.timeout, read: read, failures: map[string]float64{}})
	return nil
}

// readAll reads all queues at once. It blocks until all have answered, and no longer than the
// timeout.
func (q *queues) readAll(ctx context.Context) (values []Update) {
	q.mu.Lock()
	all := slices.Clone(q.all)
	q.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	begun := make([]*reading, len(all))
	for i, one := range all {
		begun[i] = one.begin()
	}
	for i, one := range all {
		values = append(values, one.await(ctx, begun[i])...)
	}
	return values
}

// begin begins to read the queue, unless somebody reads it already. So a server that hangs occupies
// one goroutine for each queue, however often metrics are collected.
func (q *queue) begin() *reading {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reading == nil {
		q.reading = &reading{done: make(chan struct{})}
		go q.finish(q.reading)
	}
	return q.reading
}

var errPanicked = errors.New("redlatch: reading a queue panicked")

func (q *queue) finish(r *reading) {
	r.err = errPanicked // a hook of go-redis may also end the goroutine
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("%w: %v", errPanicked, p)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.reading = nil
		close(r.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	waiters, length, err := q.read(ctx, 0, 1)
	r.length, r.err = length, err
	if len(waiters) > 0 {
		r.oldest = max(time.Since(waiters[0].Since), 0)
	}
}

// await returns what the reading found, and the failures so far. If the reading failed, the gauges
// have no values.
func (q *queue) await(ctx context.Context, r *reading) (values []Update) {
	err := error(nil)
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		select {
		case <-r.done: // both: it was in time
			err = r.err
		default:
			err = ctx.Err()
		}
	}
	primitive := q.primitive.String()
	if err == nil {
		values = append(values,
			NewUpdate(QueueLength, float64(r.length), primitive, q.name),
			NewUpdate(QueueOldestWait, r.oldest.Seconds(), primitive, q.name))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.failures[ErrorType(err)]++
	}
	failures := len(values)
	for kind, n := range q.failures {
		values = append(values, NewUpdate(QueueReadFailures, n, primitive, q.name, kind))
	}
	slices.SortFunc(values[failures:], func(a, b Update) int { return strings.Compare(a.labels[2], b.labels[2]) })
	return values
}
