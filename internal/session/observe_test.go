package session

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// A command renews several leases, and each result has an event with their number. Heartbeats of
// waiters are no renewals.
func TestRenewalsHaveAnEventForEachResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []event.Event
		s := New(Config{Observers: []event.Observer{event.Func(func(_ context.Context, e event.Event) { e.Time = time.Time{}; seen = append(seen, e) })}})
		var answers []watchdog.Result
		var failure error
		for kind := range leaseKindCount {
			s.SetRenewer(kind, func(context.Context, lua.Redis, []watchdog.Renewal) ([]watchdog.Result, error) {
				time.Sleep(time.Second)
				return answers, failure
			})
		}
		renew := func(kind LeaseKind, leases int) []event.Event {
			seen = nil
			got, err := s.renewObserved(t.Context(), s.Group(kind, "door"), make([]watchdog.Renewal, leases))
			require.Equal(t, answers, got)
			require.Equal(t, failure, err)
			synctest.Wait()
			return seen
		}
		of := func(p event.Primitive, r event.Result, n int, err error) event.Event {
			return event.Event{Kind: event.Renewed, Client: s.ID, Primitive: p, Result: r, Count: n, Duration: time.Second, Err: err}
		}
		answers = []watchdog.Result{watchdog.Renewed, watchdog.Gone, watchdog.Renewed, watchdog.Held, watchdog.Unknown}
		require.ElementsMatch(t, []event.Event{
			of(0, event.Extended, 2, nil), of(0, event.Gone, 1, nil), of(0, event.Checked, 1, nil), of(0, event.Failed, 1, nil),
		}, renew(Holds, 5))
		answers = answers[:1]
		require.Equal(t, []event.Event{of(event.Semaphore, event.Extended, 1, nil)}, renew(Permits, 1))
		require.Empty(t, renew(FairWaiters, 1))
		require.Empty(t, renew(PermitWaiters, 1))
		answers, failure = nil, io.EOF
		require.Equal(t, []event.Event{of(0, event.Failed, 5, io.EOF)}, renew(Holds, 5))
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
	})
}

// Events come twice as fast as the observer takes them. It is notified of what it missed all the
// same, before the events end, and each event is delivered or counted once.
func TestASlowObserverIsNotifiedOfWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 10_000
		var delivered, dropped, reports int
		s := New(Config{Observers: []event.Observer{event.Func(func(_ context.Context, e event.Event) {
			if e.Kind == event.Dropped {
				dropped += e.Count
				reports++
				return
			}
			delivered++
			time.Sleep(time.Second)
		})}})
		for range events {
			s.Observe(t.Context(), event.Event{Kind: event.Retried, Primitive: event.Mutex})
			time.Sleep(time.Second / 2)
		}
		synctest.Wait()
		require.Greater(t, reports, 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, events, delivered+dropped)
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
	})
}

// Close waits for events that are on their way, but not for an observer that blocks.
func TestEventsAreObservedWhenCloseReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		blocked := make(chan struct{})
		s := New(Config{Observers: []event.Observer{event.Func(func(context.Context, event.Event) {
			if n.Add(1) == 100 {
				<-blocked
			}
		})}})
		for range 100 {
			s.Observe(context.Background(), event.Event{Kind: event.Retried})
		}
		began := time.Now()
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		require.EqualValues(t, 100, n.Load())
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		close(blocked)
	})
}

// Without observers, the library allocates nothing for an event.
func TestEventsOfNobodyCostNoMemory(t *testing.T) {
	s := New(Config{})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Observe(context.Background(), event.Event{Kind: event.Retried, Err: io.EOF})
	}))
}

// The goroutine of the observers waits for further events before it ends, so that it need not be
// started for each. Events that come meanwhile are ten milliseconds late at most. Close does not
// wait for that time.
func TestEventsThatFollowSoonShareAGoroutine(t *testing.T) {
	play := func(t *testing.T, atOnce bool, soon int) {
		synctest.Test(t, func(t *testing.T) {
			events := make(chan int, 10)
			s := New(Config{Observers: []event.Observer{event.Func(func(_ context.Context, e event.Event) { events <- e.Count })}})
			if atOnce {
				s.ObserveAtOnce()
			}
			observe := func(n int) {
				s.Observe(t.Context(), event.Event{Count: n})
				synctest.Wait()
			}
			for n := range 4 {
				observe(n)
				time.Sleep(4 * time.Millisecond)
			}
			synctest.Wait()
			require.Len(t, events, soon)
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Len(t, events, 4)
			observe(4)
			require.Len(t, events, 5, "nobody lingered any more")
			observe(5)
			s.BeginClose()
			closed := time.Now()
			require.NoError(t, s.FinishClose(t.Context()))
			require.Equal(t, closed, time.Now())
			for n := range 6 {
				require.Equal(t, n, <-events)
			}
		})
	}
	t.Run("usually", func(t *testing.T) { play(t, false, 3) })
	t.Run("in tests", func(t *testing.T) { play(t, true, 4) })
}

// The queue forgets the calls that it has made, though there always is another one.
func TestAQueueThatIsNeverEmptyStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := callQueue[time.Duration]{call: time.Sleep}
		require.True(t, l.add(time.Second)) // it runs
		synctest.Wait()
		require.True(t, l.add(time.Second)) // it waits
		for range 20 * maxQueuedCalls {
			require.True(t, l.add(time.Second))
			require.False(t, l.isEmpty())
			time.Sleep(time.Second)
		}
		synctest.Wait()
		capacity := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return cap(l.queue)
		}
		require.Less(t, capacity(), 8*maxQueuedCalls)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, l.isEmpty())
		require.LessOrEqual(t, capacity(), maxIdleQueue)
	})
}

// Very many events come while the goroutine lingers. It makes room for them, so none is dropped.
func TestAQueueThatFillsEndsTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, dropped atomic.Int64
		s := New(Config{Observers: []event.Observer{event.Func(func(_ context.Context, e event.Event) {
			if e.Kind == event.Dropped {
				dropped.Add(1)
			}
			seen.Add(1)
		})}})
		const events = 5 * maxQueuedCalls
		for n := range events {
			s.Observe(t.Context(), event.Event{Kind: event.Woken})
			if n%300 == 0 {
				synctest.Wait() // at one instant, so nobody has lingered long enough
			}
		}
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		require.Zero(t, dropped.Load())
		require.EqualValues(t, events, seen.Load())
	})
}

// timeless is a context with a deadline that nobody enforces, as a program may make one.
type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Now().Add(-time.Hour), true }

// The context of an observer never ends, and has no deadline: the observer may use it to send an
// event elsewhere.
func TestTheContextOfAnObserverHasNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type keyOf struct{}
		ended, cancel := context.WithCancel(context.WithValue(t.Context(), keyOf{}, "value"))
		cancel()
		seen := 0
		s := New(Config{Observers: []event.Observer{event.Func(func(ctx context.Context, _ event.Event) {
			_, has := ctx.Deadline()
			require.False(t, has)
			require.NoError(t, ctx.Err())
			require.Equal(t, "value", ctx.Value(keyOf{}))
			seen++
		})}})
		s.Observe(ended, event.Event{Kind: event.Retried})
		s.Observe(timeless{context.WithValue(context.Background(), keyOf{}, "value")}, event.Event{Kind: event.Retried})
		s.BeginClose()
		require.NoError(t, s.FinishClose(t.Context()))
		require.Equal(t, 2, seen)
	})
}
