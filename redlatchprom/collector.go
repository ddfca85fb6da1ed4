package redlatchprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/telemetry/scripthook"
	"github.com/redlatch/redlatch/lockerr"
)

// Collector makes metrics of the events of clients. It is an observer, see redlatch.WithObserver,
// and a collector, see prometheus.Registerer. One collector serves all clients of a program. New
// makes it. Its methods may be called concurrently.
type Collector struct {
	tally      *telemetry.Tally
	counters   [telemetry.Count]*prometheus.CounterVec
	histograms [telemetry.Count]*prometheus.HistogramVec
	unlabelled [telemetry.Count]prometheus.Observer // histograms without labels, which need no look for a series
	values     [telemetry.Count]*prometheus.Desc    // of metrics that are read at each collection
	vectors    []prometheus.Collector               // counters and histograms
}

// New makes a collector. The error is a *lockerr.ConfigError that names the option which is not
// usable.
func New(options ...Option) (*Collector, error) {
	config := telemetry.Config{QueueTimeout: telemetry.DefaultQueueTimeout}
	for _, option := range options {
		if option == nil {
			return nil, &lockerr.ConfigError{Setting: "option", Value: nil, Reason: "must not be nil"}
		}
		option.apply(&config)
	}
	tally, err := telemetry.NewTally(config)
	if err != nil {
		return nil, err
	}
	c := &Collector{tally: tally}
	for id := range telemetry.Count {
		c.add(id)
	}
	for _, u := range tally.Zeros() {
		c.update(u)
	}
	return c, nil
}

// add makes the metric of an instrument.
func (c *Collector) add(id telemetry.ID) {
	i := &telemetry.Instruments[id]
	labels := c.tally.Labels(id)
	for n := range labels {
		labels[n] = telemetry.PrometheusLabel(labels[n])
	}
	switch {
	case i.Type == telemetry.Histogram:
		vector := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: i.PrometheusName(), Help: i.Help, Buckets: i.Buckets}, labels)
		c.histograms[id], c.vectors = vector, append(c.vectors, vector)
		if len(labels) == 0 {
			c.unlabelled[id] = vector.WithLabelValues()
		}
	case i.Type == telemetry.Counter && id != telemetry.QueueReadFailures:
		vector := prometheus.NewCounterVec(prometheus.CounterOpts{Name: i.PrometheusName(), Help: i.Help}, labels)
		c.counters[id], c.vectors = vector, append(c.vectors, vector)
	default:
		c.values[id] = prometheus.NewDesc(i.PrometheusName(), i.Help, labels, nil)
	}
}

// Observe implements event.Observer.
func (c *Collector) Observe(_ context.Context, e event.Event) {
	var buffer [telemetry.MaxUpdates]telemetry.Update
	for _, u := range c.tally.Updates(buffer[:0], e) {
		c.update(u)
	}
}

// update changes a counter or a histogram.
func (c *Collector) update(u telemetry.Update) {
	if histogram := c.unlabelled[u.Instrument]; histogram != nil {
		histogram.Observe(u.Value)
	} else if vector := c.histograms[u.Instrument]; vector != nil {
		vector.WithLabelValues(u.Labels()...).Observe(u.Value)
	} else {
		c.counters[u.Instrument].WithLabelValues(u.Labels()...).Add(u.Value)
	}
}

// Describe implements prometheus.Collector. It always sends the same descriptions.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, vector := range c.vectors {
		vector.Describe(to)
	}
	for _, desc := range c.values {
		if desc != nil {
			to <- desc
		}
	}
}

// Collect implements prometheus.Collector. If queues are watched, it blocks until Redis answers,
// and no longer than WithQueueTimeout says.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, vector := range c.vectors {
		vector.Collect(to)
	}
	for _, u := range c.tally.Read(context.Background()) {
		kind := prometheus.GaugeValue
		if telemetry.Instruments[u.Instrument].Type == telemetry.Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(c.values[u.Instrument], kind, u.Value, u.Labels()...)
	}
}

// RedisHook returns a hook that measures the scripts of redlatch, for AddHook of a go-redis client.
// Without it, the metrics of scripts and batches have no values. The hook ignores all other
// commands. Add it to each go-redis client once.
func (c *Collector) RedisHook() redis.Hook { return scripthook.New(c.update) }

// WatchFairMutex makes each collection read the queue of a fair mutex in Redis: one command for
// each queue and collection. Each process that watches a queue reports the same values, with the
// name of the lock as the label "name". The error is a *lockerr.ConfigError, for instance if the
// queue is watched already.
func (c *Collector) WatchFairMutex(m *redlatch.FairMutex) error {
	if m == nil {
		return c.tally.WatchQueue(event.FairMutex, "", nil)
	}
	return c.tally.WatchQueue(event.FairMutex, m.Name(), m.Queue)
}

// WatchSemaphore is WatchFairMutex for a semaphore.
func (c *Collector) WatchSemaphore(s *redlatch.Semaphore) error {
	if s == nil {
		return c.tally.WatchQueue(event.Semaphore, "", nil)
	}
	return c.tally.WatchQueue(event.Semaphore, s.Name(), s.Queue)
}
