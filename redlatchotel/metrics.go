package redlatchotel

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/telemetry/scripthook"
	"github.com/redlatch/redlatch/lockerr"
)

// scope is the name of the meter and the tracer.
const scope = "github.com/redlatch/redlatch/redlatchotel"

// MetricOption is an option of NewMetrics.
type MetricOption interface{ applyMetrics(*metricConfig) }

type metricConfig struct {
	telemetry.Config
	provider metric.MeterProvider
}

type metricOption func(*metricConfig)

func (o metricOption) applyMetrics(c *metricConfig) { o(c) }

// WithMeterProvider sets the provider of the instruments. Defaults to otel.GetMeterProvider.
func WithMeterProvider(p metric.MeterProvider) MetricOption {
	return metricOption(func(c *metricConfig) { c.provider = p })
}

// WithNameLabel adds the attribute "name" to the metrics that docs/metrics.md lists with it. label
// maps the name of a lock, with the prefix of its client, to its value. It must map all names to a
// small set, for instance by what comes before the first colon after the prefix. It is called for
// each event, concurrently for several clients. After the first 100 values, further values become
// "other". So do names for which label panics. Defaults to nil, which means no such attribute.
func WithNameLabel(label func(name string) string) MetricOption {
	return metricOption(func(c *metricConfig) { c.NameLabel = label })
}

// WithQueueTimeout sets how long a collection waits for Redis in total, to read the queues that are
// watched. A queue that could not be read has no values in this collection, and counts in
// redlatch.queue.read_failures. At least 1 ms. Defaults to 1 s.
func WithQueueTimeout(d time.Duration) MetricOption {
	return metricOption(func(c *metricConfig) { c.QueueTimeout = d })
}

// Metrics makes metrics of the events of clients. It is an observer, see redlatch.WithObserver. One
// of them serves all clients of a program. NewMetrics makes it. Its methods may be called
// concurrently.
type Metrics struct {
	tally      *telemetry.Tally
	counters   [telemetry.Count]metric.Float64Counter
	histograms [telemetry.Count]metric.Float64Histogram
	values     [telemetry.Count]metric.Float64Observable // that are read at each collection
	keys       [telemetry.Count][]attribute.Key
	options    options
	reading    metric.Registration
}

// NewMetrics makes the instruments. The error is a *lockerr.ConfigError that names the option which
// is not usable, or an error of the provider.
func NewMetrics(options ...MetricOption) (*Metrics, error) {
	config := metricConfig{Config: telemetry.Config{QueueTimeout: telemetry.DefaultQueueTimeout}, provider: otel.GetMeterProvider()}
	for _, option := range options {
		if option == nil {
			return nil, errNilOption
		}
		option.applyMetrics(&config)
	}
	if config.provider == nil {
		return nil, &lockerr.ConfigError{Setting: "meter provider", Option: "WithMeterProvider", Value: nil, Reason: "must not be nil"}
	}
	tally, err := telemetry.NewTally(config.Config)
	if err != nil {
		return nil, err
	}
	m, meter := &Metrics{tally: tally}, config.provider.Meter(scope)
	for id := range telemetry.Count {
		for _, key := range tally.Labels(id) {
			m.keys[id] = append(m.keys[id], attribute.Key(key))
		}
		err = errors.Join(err, m.add(meter, id))
	}
	if err != nil {
		return nil, err
	}
	if m.reading, err = meter.RegisterCallback(m.read, m.observables()...); err != nil {
		return nil, err
	}
	for _, u := range tally.Zeros() {
		m.update(context.Background(), u)
	}
	return m, nil
}

var errNilOption = &lockerr.ConfigError{Setting: "option", Value: nil, Reason: "must not be nil"}

// add makes an instrument.
func (m *Metrics) add(meter metric.Meter, id telemetry.ID) (err error) {
	i := &telemetry.Instruments[id]
	unit, help := metric.WithUnit(i.Unit), metric.WithDescription(i.Help)
	switch {
	case i.Type == telemetry.Histogram:
		m.histograms[id], err = meter.Float64Histogram(i.Name, unit, help, metric.WithExplicitBucketBoundaries(i.Buckets...))
	case i.Type == telemetry.UpDownCounter:
		m.values[id], err = meter.Float64ObservableUpDownCounter(i.Name, unit, help)
	case i.Type == telemetry.Gauge:
		m.values[id], err = meter.Float64ObservableGauge(i.Name, unit, help)
	case id == telemetry.QueueReadFailures:
		m.values[id], err = meter.Float64ObservableCounter(i.Name, unit, help)
	default:
		m.counters[id], err = meter.Float64Counter(i.Name, unit, help)
	}
	return err
}

func (m *Metrics) observables() (all []metric.Observable) {
	for _, value := range m.values {
		if value != nil {
			all = append(all, value)
		}
	}
	return all
}

// Observe implements event.Observer.
func (m *Metrics) Observe(ctx context.Context, e event.Event) {
	var buffer [telemetry.MaxUpdates]telemetry.Update
	for _, u := range m.tally.Updates(buffer[:0], e) {
		m.update(ctx, u)
	}
}

// update changes a counter or a histogram. The span of ctx becomes the exemplar, if the SDK has
// exemplars.
func (m *Metrics) update(ctx context.Context, u telemetry.Update) {
	o := m.options.of(u, m.attributes)
	if histogram := m.histograms[u.Instrument]; histogram != nil {
		histogram.Record(ctx, u.Value, o.record...)
	} else {
		m.counters[u.Instrument].Add(ctx, u.Value, o.add...)
	}
}

func (m *Metrics) attributes(u telemetry.Update) attribute.Set {
	var buffer [4]attribute.KeyValue
	all := buffer[:0]
	for i, value := range u.Labels() {
		all = append(all, m.keys[u.Instrument][i].String(value))
	}
	return attribute.NewSet(all...)
}

// read is called at each collection.
func (m *Metrics) read(ctx context.Context, to metric.Observer) error {
	for _, u := range m.tally.Read(ctx) {
		to.ObserveFloat64(m.values[u.Instrument], u.Value, metric.WithAttributeSet(m.attributes(u)))
	}
	return nil
}

// Stop ends the values that are read at each collection, such as redlatch.held. Counters and
// histograms keep their values. A program needs it only if the meter provider lives on.
func (m *Metrics) Stop() error { return m.reading.Unregister() }

// RedisHook returns a hook that measures the scripts of redlatch, for AddHook of a go-redis client.
// Without it, the metrics of scripts and batches have no values. The hook ignores all other
// commands. Add it to each go-redis client once. Unlike an observer, a hook runs inside of the
// command. So a panic of the meter provider does no harm, but a provider that blocks delays the
// command.
func (m *Metrics) RedisHook() redis.Hook {
	return scripthook.New(func(u telemetry.Update) { m.update(context.Background(), u) })
}

// WatchFairMutex makes each collection read the queue of a fair mutex in Redis: one command for
// each queue and collection. Each process that watches a queue reports the same values, with the
// name of the lock as the attribute "name". The error is a *lockerr.ConfigError, for instance if
// the queue is watched already.
func (m *Metrics) WatchFairMutex(mutex *redlatch.FairMutex) error {
	if mutex == nil {
		return m.tally.WatchQueue(event.FairMutex, "", nil)
	}
	return m.tally.WatchQueue(event.FairMutex, mutex.Name(), mutex.Queue)
}

// WatchSemaphore is WatchFairMutex for a semaphore.
func (m *Metrics) WatchSemaphore(s *redlatch.Semaphore) error {
	if s == nil {
		return m.tally.WatchQueue(event.Semaphore, "", nil)
	}
	return m.tally.WatchQueue(event.Semaphore, s.Name(), s.Queue)
}
