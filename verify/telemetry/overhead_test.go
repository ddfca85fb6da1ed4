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

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchotel"
	"github.com/redlatch/redlatch/redlatchprom"
)

// variant is a client with some telemetry. observed counts its releases that all observers have
// got.
type variant struct {
	name     string
	mutex    *redlatch.Mutex
	observed *atomic.Int64 // nil: nobody observes it
	turns    int64
	wall     []float64 // ns for a turn, of each chunk
	cpu      []float64
}

// newVariant makes a client. Its observers run before the one that counts.
func newVariant(b *testing.B, name string, hooked func() *redlatchprom.Collector, observers ...redlatch.Observer) *variant {
	rdb := redistest.Shared(b).Client(b)
	var options []redlatch.Option
	if hooked != nil {
		metrics := hooked()
		rdb.AddHook(metrics.RedisHook())
		observers = append(observers, metrics)
	}
	v := &variant{name: name}
	for _, o := range observers {
		options = append(options, redlatch.WithObserver(o))
	}
	if len(observers) > 0 {
		v.observed = new(atomic.Int64)
		options = append(options, redlatch.WithObserver(event.Func(func(_ context.Context, e event.Event) {
			if e.Kind == event.Released {
				v.observed.Add(1)
			}
		})))
	}
	locks, err := redlatch.New(rdb, options...)
	require.NoError(b, err)
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	v.mutex = locks.Mutex("overhead:" + name)
	return v
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// chunk locks and unlocks some times. It waits for the observers, so that their work is in its time
// and not in that of the next variant.
func (v *variant) chunk(b *testing.B) {
	const turns = 300
	began, cpu, ctx := time.Now(), cpuTime(), context.Background()
	for range turns {
		hold, err := v.mutex.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := hold.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
	v.wall = append(v.wall, float64(time.Since(began).Nanoseconds())/turns)
	for v.turns += turns; v.observed != nil && v.observed.Load() < v.turns; {
		time.Sleep(time.Millisecond)
	}
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
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	metrics, err := redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(meters))
	require.NoError(b, err)
	traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(discard{}))))
	require.NoError(b, err)
	nothing := event.Func(func(context.Context, event.Event) {})
	variants := []*variant{
		newVariant(b, "off", nil), newVariant(b, "off_again", nil), newVariant(b, "empty", nil, nothing),
		newVariant(b, "prom", nil, collector()), newVariant(b, "prom_hook", collector),
		newVariant(b, "otel", nil, metrics), newVariant(b, "otel_traces", nil, metrics, traces),
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
