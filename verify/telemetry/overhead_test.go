package telemetry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchotel"
	"github.com/redlatch/redlatch/redlatchprom"
)

// variant is some telemetry, and what turns cost with it.
type variant struct {
	name      string
	hook      *redlatchprom.Collector // also a hook of the Redis client; may be nil
	observers []redlatch.Observer
	wall, cpu []float64 // ns for a turn, of each chunk
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// chunk makes a client, and locks and unlocks some times. It waits for the observers, so that their
// work is in its time and not in that of the next variant. Each chunk has a connection of its own:
// where the kernel serves a connection makes one client up to 10 % slower than another, for as long
// as the connection lasts.
func (v *variant) chunk(b *testing.B) {
	const warmUp, turns = 30, 300
	ctx := context.Background()
	rdb := redis.NewClient(redistest.Shared(b).Client(b).Options())
	defer rdb.Close()
	var options []redlatch.Option
	if v.hook != nil {
		rdb.AddHook(v.hook.RedisHook())
	}
	for _, o := range v.observers {
		options = append(options, redlatch.WithObserver(o))
	}
	var observed atomic.Int64 // releases that all observers have got
	if len(v.observers) > 0 {
		options = append(options, redlatch.WithObserver(event.Func(func(_ context.Context, e event.Event) {
			if e.Kind == event.Released {
				observed.Add(1)
			}
		})))
	}
	locks, err := redlatch.New(rdb, options...)
	require.NoError(b, err)
	defer func() { _ = locks.Close(ctx) }()
	mutex := locks.Mutex("overhead")
	lockAndUnlock := func(times int64) {
		for range times {
			hold, err := mutex.Lock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := hold.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	// All variants rest as long, because the first turns after a rest are slower.
	untilObserved := func(times int64) {
		for began := time.Now(); time.Since(began) < 20*time.Millisecond || len(v.observers) > 0 && observed.Load() < times; {
			time.Sleep(time.Millisecond)
		}
	}
	lockAndUnlock(warmUp)
	untilObserved(warmUp)
	began, cpu := time.Now(), cpuTime()
	lockAndUnlock(turns)
	v.wall = append(v.wall, float64(time.Since(began).Nanoseconds())/turns)
	untilObserved(warmUp + turns)
	v.cpu = append(v.cpu, float64((cpuTime()-cpu).Nanoseconds())/turns)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkOverhead shows what telemetry adds to Lock and Unlock of a free mutex on a real server:
// to the time of the calls, and to the time of the processors. The variants take turns, so that a
// busy machine slows all of them.
//
//	go test -run - -bench Overhead -benchtime 40x
func BenchmarkOverhead(b *testing.B) {
	collector := func() *redlatchprom.Collector {
		metrics, err := redlatchprom.New()
		require.NoError(b, err)
		return metrics
	}
	hooked := collector()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	metrics, err := redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(meters))
	require.NoError(b, err)
	traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(discard{}))))
	require.NoError(b, err)
	nothing := event.Func(func(context.Context, event.Event) {})
	variants := []*variant{
		{name: "off"}, {name: "off_again"},
		{name: "empty", observers: []redlatch.Observer{nothing}},
		{name: "prom", observers: []redlatch.Observer{collector()}},
		{name: "prom_hook", hook: hooked, observers: []redlatch.Observer{hooked}},
		{name: "otel", observers: []redlatch.Observer{metrics}},
		{name: "otel_traces", observers: []redlatch.Observer{metrics, traces}},
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(variants)) {
			variants[i].chunk(b)
		}
	}
	off := variants[0]
	for _, v := range variants {
		wall, cpu := median(v.wall), median(v.cpu)
		b.Logf("%-12s %6.1f µs a turn (%+5.1f %%), %6.1f µs of processor time (%+5.1f %%)", v.name,
			wall/1000, 100*(wall/median(off.wall)-1), cpu/1000, 100*(cpu/median(off.cpu)-1))
		b.ReportMetric(wall, v.name+"-ns/turn")
	}
}

type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// BenchmarkObserve shows what the observers need for the three events of a turn.
func BenchmarkObserve(b *testing.B) {
	collector, err := redlatchprom.New()
	require.NoError(b, err)
	metrics, err := redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))))
	require.NoError(b, err)
	traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(discard{}))))
	require.NoError(b, err)
	for name, o := range map[string]redlatch.Observer{"prom": collector, "otel": metrics, "traces": traces} {
		b.Run(name, func(b *testing.B) {
			ctx, n := context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				e := event.Event{Client: "a", Wait: uint64(n), Primitive: event.Mutex, Name: "orders:42", Units: 1, Time: time.Now()} //nolint:gosec // it counts
				for _, kind := range []event.Kind{event.WaitBegan, event.WaitEnded, event.Released} {
					e.Kind, e.Result, e.Source = kind, event.Acquired, event.Redis
					if kind != event.WaitBegan {
						e.ID = ids[n%len(ids)]
					}
					o.Observe(ctx, e)
				}
			}
		})
	}
}

var ids = func() (all []string) {
	for n := range 1000 {
		all = append(all, fmt.Sprint("a:", n))
	}
	return all
}()
