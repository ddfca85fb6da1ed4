package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Recorder is an observer that keeps the events.
type Recorder struct {
	mutex  sync.Mutex
	Events []event.Event
	Values []any // of the contexts, for RecorderKey
	Waits  []uint64
	seen   int    // the test has looked at so many events
	Settle func() // returns when the observers have got all events; nil if the test waits for that itself
}

// RecorderKey is the key of a context value that a Recorder notes.
type RecorderKey struct{}

func (r *Recorder) Observe(ctx context.Context, e event.Event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if e.Time.IsZero() || e.Time.After(time.Now()) || ctx.Err() != nil || e.Client == "" || e.ID != "" && !strings.HasPrefix(e.ID, e.Client+":") {
		panic(fmt.Sprint("an event without a time or its client, or with a context that ended: ", e))
	}
	r.Waits = append(r.Waits, e.Wait)
	e.Time, e.Client, e.Wait = time.Time{}, "", 0 // so that tests compare the rest
	r.Events, r.Values = append(r.Events, e), append(r.Values, ctx.Value(RecorderKey{}))
}

// Of returns the events of these kinds since the last call of Forget, or all of them if there are
// no kinds.
func (r *Recorder) Of(kinds ...event.Kind) (some []event.Event) {
	if r.Settle != nil {
		r.Settle()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, e := range r.Events[r.seen:] {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			some = append(some, e)
		}
	}
	return some
}

// Forget makes Of start after all events so far.
func (r *Recorder) Forget() {
	if r.Settle != nil {
		r.Settle()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen = len(r.Events)
}

// Take returns the only event of a kind, and forgets all events so far.
func (r *Recorder) Take(t testing.TB, kind event.Kind) event.Event {
	t.Helper()
	all := r.Of(kind)
	require.Len(t, all, 1, "%v: %v", kind, r.Of())
	r.Forget()
	return all[0]
}

// Balance counts as the documentation of package event says.
func (r *Recorder) Balance() (waiting, held int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var counts [event.Semaphore + 1]struct{ waiting, held int }
	for _, e := range r.Events {
		c := &counts[e.Primitive]
		switch {
		case e.Kind == event.WaitBegan:
			c.waiting++
		case e.Kind == event.WaitEnded:
			c.waiting--
			if e.Result == event.Acquired && e.Source != event.Reentry {
				c.held++
			}
		case e.Kind == event.Released, e.Kind == event.Lost:
			c.held--
		case e.Kind == event.Dropped:
			c.waiting, c.held = e.Waiting, e.Held
		}
	}
	for _, c := range counts {
		waiting, held = waiting+c.waiting, held+c.held
	}
	return waiting, held
}

// Observed is a scene with a recorder, and another client that nobody observes.
type Observed struct {
	*Scene
	*Recorder
	Other *redlatch.Client
}

// AwaitEvents waits until the observers have got all events of a bubble.
func AwaitEvents() {
	const late = 10 * time.Millisecond // at most
	synctest.Wait()
	time.Sleep(late)
	synctest.Wait()
}

// InObservedBubble plays a scene with a recorder in virtual time. At the end, every wait and every
// grant must have ended.
func InObservedBubble(t *testing.T, play func(t *testing.T, s *Observed), options ...redlatch.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &Recorder{Settle: AwaitEvents}
		s := InBubble(t, append([]redlatch.Option{redlatch.WithObserver(r)}, options...)...)
		play(t, &Observed{s, r, LocksOn(t, s.Direct)})
		require.NoError(t, s.Locks.Close(t.Context()))
		synctest.Wait()
		waiting, held := r.Balance()
		require.Zero(t, waiting, "waits without an end")
		require.Zero(t, held, "grants without an end")
	})
}

// Outages are the two ways in which a client cannot reach Redis.
var Outages = map[string]func(s *Observed){
	"down":   func(s *Observed) { s.Proxy.Down() },
	"silent": func(s *Observed) { s.Proxy.BlackHole(redistest.CommandTraffic) },
}

// RefusedFor asserts that another client does not get the lock for d.
func (s *Observed) RefusedFor(kind string, d time.Duration) {
	s.T.Helper()
	short, cancel := context.WithTimeout(s.T.Context(), d)
	defer cancel()
	_, _, err := Kinds[kind].Take(s.Other, short)
	require.ErrorIs(s.T, err, redlatch.ErrNotAcquired)
}

// Taken has another client take a lock. free releases it.
func (s *Observed) Taken(t *testing.T, kind, name string) (free func()) {
	t.Helper()
	_, release, err := ByName[kind].Take(s.Other, t.Context(), name)
	require.NoError(t, err)
	return func() { require.NoError(t, release(t.Context())) }
}
