package redlatchotel_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchotel"
)

func newMetrics(t testing.TB, options ...redlatchotel.MetricOption) (*redlatchotel.Metrics, func() map[string]metricdata.Metrics) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	metrics, err := redlatchotel.NewMetrics(append(options, redlatchotel.WithMeterProvider(provider))...)
	require.NoError(t, err)
	return metrics, func() map[string]metricdata.Metrics {
		var got metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(context.Background(), &got))
		all := map[string]metricdata.Metrics{}
		for _, scope := range got.ScopeMetrics {
			require.Equal(t, "github.com/redlatch/redlatch/redlatchotel", scope.Scope.Name)
			for _, m := range scope.Metrics {
				all[m.Name] = m
			}
		}
		return all
	}
}

// some has an event for each instrument that events change.
func some() (events []event.Event) {
	events = []event.Event{
		{Kind: event.WaitBegan},
		{Kind: event.WaitEnded, Result: event.Acquired, Source: event.Redis, ID: "a:1"},
		{Kind: event.WaitEnded, Result: event.Acquired, Source: event.Reentry, ID: "a:1"},
		{Kind: event.Released, ID: "a:2", Err: context.Canceled},
		{Kind: event.Lost, ID: "a:3", Result: event.Gone},
		{Kind: event.Leaked}, {Kind: event.LateGrant},
		{Kind: event.Woken, Result: event.Poll},
		{Kind: event.Retried, Err: context.DeadlineExceeded},
		{Kind: event.Renewed, Result: event.Extended, Count: 2},
		{Kind: event.Disconnected, Err: context.DeadlineExceeded},
		{Kind: event.Dropped, Count: 1, Held: 1},
		{Kind: event.WaitEnded, Result: event.Acquired, Source: event.Redis, ID: "a:4"},
	}
	for i := range events {
		events[i].Client, events[i].Primitive, events[i].Name, events[i].Time = "a", event.Mutex, "orders:42", time.Now()
	}
	return events
}

// Each instrument of the table is there, with its unit, its help and its type, and has no other
// attributes.
func TestTheInstrumentsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	metrics, collect := newMetrics(t, redlatchotel.WithNameLabel(func(name string) string { return strings.Split(name, ":")[0] }))
	rdb := redistest.Shared(t).Client(t)
	rdb.AddHook(metrics.RedisHook())
	locks, err := redlatch.New(rdb)
	require.NoError(t, err)
	require.NoError(t, locks.Mutex(t.Name()).Do(ctx, func(context.Context) error { return nil }))
	require.NoError(t, metrics.WatchFairMutex(locks.FairMutex(t.Name())))
	closed, err := redlatch.New(rdb)
	require.NoError(t, err)
	require.NoError(t, closed.Close(ctx))
	require.NoError(t, metrics.WatchSemaphore(closed.Semaphore(t.Name(), 1)))
	for _, e := range some() {
		metrics.Observe(ctx, e)
	}
	got := collect()
	require.NoError(t, locks.Close(context.Background()))
	require.Len(t, got, int(telemetry.Count))
	for _, i := range telemetry.Instruments {
		m := got[i.Name]
		require.Equal(t, i.Unit, m.Unit, i.Name)
		require.Equal(t, i.Help, m.Description, i.Name)
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			require.Equal(t, telemetry.Histogram, i.Type, i.Name)
			require.Equal(t, i.Buckets, data.DataPoints[0].Bounds, i.Name)
		case metricdata.Gauge[float64]:
			require.Equal(t, telemetry.Gauge, i.Type, i.Name)
		case metricdata.Sum[float64]:
			require.Equal(t, i.Type == telemetry.Counter, data.IsMonotonic, i.Name)
			require.Contains(t, []telemetry.Type{telemetry.Counter, telemetry.UpDownCounter}, i.Type, i.Name)
			for _, point := range data.DataPoints {
				for _, a := range point.Attributes.ToSlice() {
					require.Contains(t, append(i.Labels, telemetry.NameKey), string(a.Key), i.Name)
					require.NotEqual(t, "orders:42", a.Value.AsString(), i.Name)
				}
			}
		default:
			require.Fail(t, "another type", "%s: %T", i.Name, data)
		}
	}
}

func TestStopEndsTheValuesThatAreReadAtEachCollection(t *testing.T) {
	t.Parallel()
	metrics, collect := newMetrics(t)
	for _, e := range some() {
		metrics.Observe(t.Context(), e)
	}
	require.Contains(t, collect(), "redlatch.held")
	require.NoError(t, metrics.Stop())
	require.NotContains(t, collect(), "redlatch.held")
	require.Contains(t, collect(), "redlatch.grants")
}

func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for _, option := range []redlatchotel.MetricOption{nil, redlatchotel.WithQueueTimeout(0), redlatchotel.WithMeterProvider(nil)} {
		_, err := redlatchotel.NewMetrics(option)
		require.ErrorIs(t, err, redlatch.ErrConfig)
	}
	for _, option := range []redlatchotel.TraceOption{nil, redlatchotel.WithTracerProvider(nil)} {
		_, err := redlatchotel.NewTraces(option)
		require.ErrorIs(t, err, redlatch.ErrConfig)
	}
	metrics, err := redlatchotel.NewMetrics()
	require.NoError(t, err, "the global provider")
	require.ErrorIs(t, metrics.WatchFairMutex(nil), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchFairMutex(new(redlatch.FairMutex)), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchSemaphore(nil), redlatch.ErrConfig)
	require.ErrorIs(t, metrics.WatchSemaphore(new(redlatch.Semaphore)), redlatch.ErrConfig)
	_, err = redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(failing{otel.GetMeterProvider()}))
	require.ErrorIs(t, err, errProvider)
}

var errProvider = errors.New("no more instruments")

type failing struct{ metric.MeterProvider }

func (failing) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ noop.Meter }

func (failingMeter) Float64Counter(string, ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	return nil, errProvider
}

// A function of the program that panics, ends its goroutine or blocks is called in the goroutine of
// the observers. Locks go on, and metrics can be collected.
func TestTelemetryThatFailsAffectsNoLock(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	for fault, label := range map[string]func(string) string{
		"panics": func(string) string { panic("a bug of the program") },
		"exits":  func(string) string { runtime.Goexit(); return "" },
		"blocks": func(string) string { <-blocked; return "" },
	} {
		t.Run(fault, func(t *testing.T) {
			metrics, collect := newMetrics(t, redlatchotel.WithNameLabel(label))
			traces, err := redlatchotel.NewTraces(redlatchotel.WithSpanName(label))
			require.NoError(t, err)
			locks, err := redlatch.New(redistest.Shared(t).Client(t), redlatch.WithObserver(metrics), redlatch.WithObserver(traces))
			require.NoError(t, err)
			mutex := locks.Mutex(t.Name())
			for range 600 { // more events than wait for an observer
				require.NoError(t, mutex.Do(t.Context(), func(context.Context) error { return nil }))
			}
			require.Contains(t, collect(), "redlatch.held")
			if fault == "blocks" {
				close(blocked)
			}
			require.NoError(t, locks.Close(context.Background()))
		})
	}
}
