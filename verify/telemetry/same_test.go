package telemetry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchotel"
	"github.com/redlatch/redlatch/redlatchprom"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// both are the two modules, beside each other.
type both struct {
	released atomic.Int64
	prom     *redlatchprom.Collector
	otel     *redlatchotel.Metrics
	promReg  *prometheus.Registry
	otelReg  *prometheus.Registry
}

func newBoth(t testing.TB, label func(string) string) *both {
	t.Helper()
	b := &both{promReg: prometheus.NewPedanticRegistry(), otelReg: prometheus.NewRegistry()}
	var err error
	b.prom, err = redlatchprom.New(redlatchprom.WithNameLabel(label))
	require.NoError(t, err)
	require.NoError(t, b.promReg.Register(b.prom))
	// Without the labels that the exporter adds to all metrics of a scope.
	reader, err := exporter.New(exporter.WithRegisterer(b.otelReg), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	b.otel, err = redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(provider), redlatchotel.WithNameLabel(label))
	require.NoError(t, err)
	return b
}

// Observe implements event.Observer.
func (b *both) Observe(ctx context.Context, e event.Event) {
	b.prom.Observe(ctx, e)
	b.otel.Observe(ctx, e)
	if e.Kind == event.Released {
		b.released.Add(1)
	}
}

// invented are events with each result of each kind.
func invented() (events []event.Event) {
	add := func(e event.Event) {
		e.Client, e.Name, e.Time, e.Duration = "invented", "orders:42", time.Now(), 20*time.Millisecond
		events = append(events, e)
	}
	n := 0
	for p := event.Mutex; p <= event.Semaphore; p++ {
		for result := event.Acquired; result <= event.NotReplicated; result++ {
			for _, try := range []bool{false, true} {
				n++
				add(event.Event{Kind: event.WaitBegan, Primitive: p, Try: try})
				add(event.Event{Kind: event.WaitEnded, Primitive: p, Try: try, Result: result, Source: event.Redis, ID: fmt.Sprint(n)})
			}
		}
		for _, source := range []event.Source{event.Handoff, event.Attached, event.Reentry} {
			n++
			add(event.Event{Kind: event.WaitBegan, Primitive: p})
			add(event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Acquired, Source: source, ID: fmt.Sprint(n)})
			add(event.Event{Kind: event.Released, Primitive: p, ID: fmt.Sprint(n - 1), Err: context.DeadlineExceeded})
		}
		for reason := event.Unconfirmed; reason <= event.NotRenewed; reason++ {
			add(event.Event{Kind: event.Lost, Primitive: p, Result: reason, ID: "unknown"})
		}
		for cause := event.Message; cause <= event.LeaseEnd; cause++ {
			add(event.Event{Kind: event.Woken, Primitive: p, Result: cause})
		}
		for _, result := range []event.Result{event.Extended, event.Checked, event.Failed, event.Gone} {
			add(event.Event{Kind: event.Renewed, Primitive: p, Result: result, Count: 3})
		}
		for _, kind := range []event.Kind{event.Leaked, event.LateGrant, event.Retried} {
			add(event.Event{Kind: kind, Primitive: p, Err: context.DeadlineExceeded})
		}
		add(event.Event{Kind: event.Dropped, Primitive: p, Count: 5, Held: 2, Waiting: 1})
		add(event.Event{Kind: event.WaitEnded, Primitive: p, Result: event.Acquired, Source: event.Redis, ID: "held" + p.String()})
	}
	add(event.Event{Kind: event.Disconnected, Err: context.DeadlineExceeded})
	return events
}

// play makes all instruments change: with a client on a real server, and with invented events.
func (b *both) play(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	rdb := redistest.Shared(t).Client(t)
	rdb.AddHook(b.prom.RedisHook())
	rdb.AddHook(b.otel.RedisHook())
	locks, err := redlatch.New(rdb, redlatch.WithObserver(b))
	require.NoError(t, err)
	const rounds = 50
	for range rounds {
		require.NoError(t, locks.Mutex("orders:1").Do(ctx, func(context.Context) error { return nil }))
		require.NoError(t, locks.FairMutex("orders:2").Do(ctx, func(context.Context) error { return nil }))
		require.NoError(t, locks.Semaphore("render", 2).Do(ctx, 1, func(context.Context) error { return nil }))
	}
	require.NoError(t, locks.Close(ctx))
	require.Eventually(t, func() bool { return b.released.Load() == 3*rounds }, time.Minute, time.Millisecond, "Close waits for only 100 ms")
	for _, e := range invented() {
		b.Observe(ctx, e)
	}
	queues, err := redlatch.New(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = queues.Close(ctx) })
	for _, watch := range []func(*redlatch.FairMutex) error{b.prom.WatchFairMutex, b.otel.WatchFairMutex} {
		require.NoError(t, watch(queues.FairMutex("reports")))
	}
	closed, err := redlatch.New(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	require.NoError(t, closed.Close(ctx))
	for _, watch := range []func(*redlatch.Semaphore) error{b.prom.WatchSemaphore, b.otel.WatchSemaphore} {
		require.NoError(t, watch(closed.Semaphore("render", 2)))
	}
}

func gather(t testing.TB, registry *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := registry.Gather()
	require.NoError(t, err)
	families := map[string]*dto.MetricFamily{}
	for _, f := range all {
		families[f.GetName()] = f
	}
	return families
}

// isOfAClock reports whether the values of a metric depend on when it was measured or read, so that
// two modules do not have the same.
func isOfAClock(name string) bool {
	return slices.Contains([]string{
		telemetry.Instruments[telemetry.OldestHoldAge].PrometheusName(), telemetry.Instruments[telemetry.QueueOldestWait].PrometheusName(),
		telemetry.Instruments[telemetry.ScriptDuration].PrometheusName(),
	}, name)
}

// series returns the series of a family as text.
func series(f *dto.MetricFamily) (all []string) {
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(labels)
		value := ""
		switch {
		case m.Histogram != nil:
			value = fmt.Sprint(m.GetHistogram().GetSampleCount())
			for _, b := range m.GetHistogram().GetBucket() {
				value += fmt.Sprint(" le ", b.GetUpperBound())
				if !isOfAClock(f.GetName()) {
					value += fmt.Sprint(": ", b.GetCumulativeCount())
				}
			}
			if !isOfAClock(f.GetName()) {
				value += fmt.Sprintf(" sum %.9f", m.GetHistogram().GetSampleSum())
			}
		case isOfAClock(f.GetName()):
		default:
			value = fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
		all = append(all, "{"+strings.Join(labels, ",")+"} "+value)
	}
	slices.Sort(all)
	return all
}

// One board serves both modules: after the translation of OpenTelemetry to Prometheus they have the
// same metrics, with the same help, types, labels and values.
func TestBothModulesHaveTheSameMetrics(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]func(string) string{
		"without names": nil,
		"with names":    func(name string) string { return strings.Split(name, ":")[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoth(t, label)
			b.play(t)
			prom, otel := gather(t, b.promReg), gather(t, b.otelReg)
			require.Len(t, prom, int(telemetry.Count))
			require.Len(t, otel, int(telemetry.Count))
			for name, f := range prom {
				require.Contains(t, otel, name)
				require.Equal(t, f.GetType(), otel[name].GetType(), name)
				require.Equal(t, f.GetHelp(), otel[name].GetHelp(), name)
				require.Equal(t, series(f), series(otel[name]), name)
				require.NotEmpty(t, series(f), name)
			}
		})
	}
}
