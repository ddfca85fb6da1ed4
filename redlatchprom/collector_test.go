package redlatchprom_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchprom"
)

func newCollector(t testing.TB, options ...redlatchprom.Option) *redlatchprom.Collector {
	t.Helper()
	metrics, err := redlatchprom.New(options...)
	require.NoError(t, err)
	return metrics
}

// everyEvent has at least one event for each instrument that events change.
func everyEvent() (events []event.Event) {
	at := time.Now()
	for p := event.Mutex; p <= event.Semaphore; p++ {
		id := "a:" + p.String()
		events = append(events,
			event.Event{Kind: event.WaitBegan, Primitive: p},
			event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Acquired, Source: event.Redis, ID: id + "1", Duration: time.Millisecond},
			event.Event{Kind: event.WaitBegan, Primitive: p},
			event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Acquired, Source: event.Handoff, ID: id + "2", Duration: time.Second},
			event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Acquired, Source: event.Reentry, ID: id + "1"},
			event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Busy, Try: true},
			event.Event{Kind: event.Woken, Primitive: p, Result: event.Message},
			event.Event{Kind: event.Released, Primitive: p, ID: id + "2", Duration: time.Second, Err: context.Canceled},
			event.Event{Kind: event.Leaked, Primitive: p},
			event.Event{Kind: event.Retried, Primitive: p, Err: context.DeadlineExceeded},
			event.Event{Kind: event.LateGrant, Primitive: p},
			event.Event{Kind: event.Renewed, Result: event.Extended, Count: 3, Duration: time.Millisecond},
			event.Event{Kind: event.Disconnected, Err: context.DeadlineExceeded},
		)
	}
	events = append(events, event.Event{Kind: event.Lost, Primitive: event.Mutex, Result: event.Gone, ID: "a:mutex9", Duration: time.Second})
	for i := range events {
		events[i].Time, events[i].Client, events[i].Name = at, "a", "orders:42"
	}
	return events
}

// hookScripts sends a script through the hook of a collector, without a server.
func hookScripts(t testing.TB, hook redis.Hook) {
	t.Helper()
	locks := redistest.Shared(t).Client(t)
	locks.AddHook(hook)
	client, err := redlatch.New(locks)
	require.NoError(t, err)
	require.NoError(t, client.Mutex("hooked").Do(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, client.Close(context.Background()))
}

// watchQueues makes a client with two queues that the collector watches, one of which cannot be
// read.
func watchQueues(t testing.TB, metrics *redlatchprom.Collector) {
	t.Helper()
	rdb := redistest.Shared(t).Client(t)
	locks, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	closed, err := redlatch.New(rdb)
	require.NoError(t, err)
	require.NoError(t, closed.Close(context.Background()))
	require.NoError(t, metrics.WatchFairMutex(locks.FairMutex(t.Name())))
	require.NoError(t, metrics.WatchSemaphore(closed.Semaphore(t.Name(), 1)))
}

// With every instrument in the scrape, promlint has nothing to say, and each metric that is
// described is there.
func TestTheMetricsAreThoseThatPromlintLikes(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]redlatchprom.Option{
		"without names": nil,
		"with names":    {redlatchprom.WithNameLabel(func(name string) string { return strings.Split(name, ":")[0] })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metrics := newCollector(t, options...)
			for _, e := range everyEvent() {
				metrics.Observe(t.Context(), e)
			}
			hookScripts(t, metrics.RedisHook())
			watchQueues(t, metrics)
			registry := prometheus.NewPedanticRegistry() // checks descriptions, too
			require.NoError(t, registry.Register(metrics))
			problems, err := testutil.GatherAndLint(registry)
			require.NoError(t, err)
			require.Empty(t, problems)
			families, err := registry.Gather()
			require.NoError(t, err)
			var got, want []string
			for _, f := range families {
				got = append(got, f.GetName())
			}
			for id := range telemetry.Count {
				want = append(want, telemetry.Instruments[id].PrometheusName())
			}
			slices.Sort(want)
			require.Equal(t, want, got)
		})
	}
}

func describe(c prometheus.Collector) (all []string) {
	to := make(chan *prometheus.Desc, 1000)
	c.Describe(to)
	close(to)
	for desc := range to {
		all = append(all, desc.String())
	}
	return all
}

func TestDescribeIsConstant(t *testing.T) {
	t.Parallel()
	metrics := newCollector(t)
	before := describe(metrics)
	require.Len(t, before, int(telemetry.Count))
	for _, e := range everyEvent() {
		metrics.Observe(t.Context(), e)
	}
	require.Equal(t, before, describe(metrics))
	require.Equal(t, before, describe(newCollector(t)))
}

// The first loss must be an increase of a series that is there already.
func TestCountersOfTroubleBeginWithZero(t *testing.T) {
	t.Parallel()
	metrics := newCollector(t)
	require.Equal(t, 15, testutil.CollectAndCount(metrics, "redlatch_losses_total"))
	require.Equal(t, 3, testutil.CollectAndCount(metrics, "redlatch_leaked_holds_total"))
	named := newCollector(t, redlatchprom.WithNameLabel(func(string) string { return "a" }))
	require.Zero(t, testutil.CollectAndCount(named, "redlatch_losses_total"), "names are not known before")
	require.NotZero(t, testutil.CollectAndCount(named, "redlatch_renewals_total"))
}

func TestTheCollectorIsSafeUnderConcurrency(t *testing.T) {
	t.Parallel()
	metrics := newCollector(t, redlatchprom.WithNameLabel(func(name string) string { return name }))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	const clients, rounds = 4, 25
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for n := range rounds {
				for _, e := range everyEvent() {
					e.Client, e.ID = fmt.Sprint(c), fmt.Sprint(c, n, e.ID)
					metrics.Observe(t.Context(), e)
				}
				_, err := registry.Gather()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP redlatch_losses_total Locks and permits that were lost, by the reason.
# TYPE redlatch_losses_total counter
redlatch_losses_total{name="orders:42",primitive="mutex",reason="gone"} %d
`, clients*rounds)), "redlatch_losses_total"))
}

// play uses locks in the ways that metrics distinguish, with a client that metrics observe.
func play(t *testing.T, rdb *redis.Client, metrics redlatch.Observer) {
	t.Helper()
	ctx, name := t.Context(), t.Name()
	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics))
	require.NoError(t, err)
	hold, err := locks.Mutex(name).Lock(ctx)
	require.NoError(t, err)
	inner, err := locks.Mutex(name).Lock(hold.Context())
	require.NoError(t, err)
	require.NoError(t, inner.Unlock(ctx))
	_, err = locks.Mutex(name).TryLock(ctx)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	kept, err := locks.Semaphore(name, 3).Acquire(ctx, 2)
	require.NoError(t, err)
	_, err = locks.Mutex(name).ForceRelease(ctx, "")
	require.NoError(t, err)
	require.ErrorIs(t, hold.Unlock(ctx), redlatch.ErrLost)
	require.NoError(t, locks.FairMutex(name).Do(ctx, func(context.Context) error { return nil }))
	require.NoError(t, kept.Release(ctx))
	require.NoError(t, locks.Close(context.Background()))
}

func TestARunIsCounted(t *testing.T) {
	t.Parallel()
	metrics := newCollector(t)
	play(t, redistest.Shared(t).Client(t), metrics)
	awaitHeld(t, metrics)
	require.NoError(t, testutil.CollectAndCompare(metrics, strings.NewReader(`
# HELP redlatch_grants_total Grants that a call returned, by where they came from. The source handoff is a local handoff.
# TYPE redlatch_grants_total counter
redlatch_grants_total{primitive="fair_mutex",source="redis"} 1
redlatch_grants_total{primitive="mutex",source="redis"} 1
redlatch_grants_total{primitive="semaphore",source="redis"} 1
# HELP redlatch_held Locks and permits that are held now.
# TYPE redlatch_held gauge
redlatch_held{primitive="fair_mutex"} 0
redlatch_held{primitive="mutex"} 0
redlatch_held{primitive="semaphore"} 0
# HELP redlatch_reentries_total Holds of locks that their owner had already.
# TYPE redlatch_reentries_total counter
redlatch_reentries_total{primitive="mutex"} 1
# HELP redlatch_waiting Calls that wait for a lock or a permit now.
# TYPE redlatch_waiting gauge
redlatch_waiting{primitive="fair_mutex"} 0
redlatch_waiting{primitive="mutex"} 0
redlatch_waiting{primitive="semaphore"} 0
`), "redlatch_grants_total", "redlatch_held", "redlatch_reentries_total", "redlatch_waiting"))
	require.Equal(t, 4, testutil.CollectAndCount(metrics, "redlatch_wait_duration_seconds"), "three grants, and the try that found it busy")
	require.Equal(t, 3, testutil.CollectAndCount(metrics, "redlatch_hold_duration_seconds"), "two that were released, and one that was lost")
}

// awaitHeld waits until the collector has got all events of a client that was closed: Close waits
// for only 100 ms.
func awaitHeld(t *testing.T, metrics *redlatchprom.Collector) {
	t.Helper()
	require.Eventually(t, func() bool {
		return testutil.CollectAndCompare(metrics, strings.NewReader(`
# HELP redlatch_held Locks and permits that are held now.
# TYPE redlatch_held gauge
redlatch_held{primitive="fair_mutex"} 0
redlatch_held{primitive="mutex"} 0
redlatch_held{primitive="semaphore"} 0
`), "redlatch_held") == nil && testutil.CollectAndCount(metrics, "redlatch_hold_duration_seconds") == 3
	}, time.Minute, time.Millisecond)
}

func TestTheQueueOfAFairMutexIsReadAtEachCollection(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	metrics := newCollector(t)
	locks, err := redlatch.New(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	defer locks.Close(context.Background())
	mutex := locks.FairMutex("jobs")
	require.NoError(t, metrics.WatchFairMutex(mutex))
	length := func(n int) error {
		return testutil.CollectAndCompare(metrics, strings.NewReader(fmt.Sprintf(`
# HELP redlatch_queue_length Waiters in the queue in Redis, of all processes.
# TYPE redlatch_queue_length gauge
redlatch_queue_length{name="jobs",primitive="fair_mutex"} %d
`, n)), "redlatch_queue_length")
	}
	require.NoError(t, length(0))
	hold, err := mutex.Lock(ctx)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- mutex.Do(ctx, func(context.Context) error { return nil }) }()
	require.Eventually(t, func() bool { return length(1) == nil }, time.Minute, time.Millisecond)
	require.Equal(t, 1, testutil.CollectAndCount(metrics, "redlatch_queue_oldest_wait_seconds"))
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, <-done)
	require.NoError(t, length(0))
}

func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for _, option := range []redlatchprom.Option{nil, redlatchprom.WithQueueTimeout(0)} {
		_, err := redlatchprom.New(option)
		require.ErrorIs(t, err, redlatch.ErrConfig)
	}
	metrics := newCollector(t)
	require.ErrorIs(t, metrics.WatchFairMutex(nil), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchFairMutex(new(redlatch.FairMutex)), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchSemaphore(nil), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchSemaphore(new(redlatch.Semaphore)), redlatch.ErrConfig)
}

// A function of the program that panics, ends its goroutine or blocks is called in the goroutine of
// the observers. Locks go on, and so do other observers.
func TestTelemetryThatFailsAffectsNoLock(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	for fault, label := range map[string]func(string) string{
		"panics": func(string) string { panic("a bug of the program") },
		"exits":  func(string) string { runtime.Goexit(); return "" },
		"blocks": func(string) string { <-blocked; return "" },
	} {
		t.Run(fault, func(t *testing.T) {
			metrics := newCollector(t, redlatchprom.WithNameLabel(label))
			locks, err := redlatch.New(redistest.Shared(t).Client(t), redlatch.WithObserver(metrics))
			require.NoError(t, err)
			mutex := locks.Mutex(t.Name())
			for range 600 { // more events than wait for an observer
				require.NoError(t, mutex.Do(t.Context(), func(context.Context) error { return nil }))
			}
			_, err = registryOf(t, metrics).Gather()
			require.NoError(t, err)
			if fault == "blocks" {
				close(blocked)
			}
			require.NoError(t, locks.Close(context.Background()))
		})
	}
}

func registryOf(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	return registry
}
