package redlatchprom

import (
	"time"

	"github.com/redlatch/redlatch/internal/telemetry"
)

// Option is an option of New.
type Option interface{ apply(*telemetry.Config) }

type option func(*telemetry.Config)

func (o option) apply(c *telemetry.Config) { o(c) }

// WithNameLabel adds the label "name" to the metrics that docs/metrics.md lists with it. label maps
// the name of a lock, with the prefix of its client, to its value. It must map all names to a small
// set, for instance by what comes before the first colon after the prefix. The collector calls it
// for each event, concurrently for several clients. After the first 100 values, further values
// become "other". So do names for which label panics. Defaults to nil, which means no such label.
func WithNameLabel(label func(name string) string) Option {
	return option(func(c *telemetry.Config) { c.NameLabel = label })
}

// WithQueueTimeout sets how long a collection waits for Redis in total, to read the queues that are
// watched. A queue that could not be read has no values in this collection, and counts in
// redlatch_queue_read_failures_total. At least 1 ms. Defaults to 1 s.
func WithQueueTimeout(d time.Duration) Option {
	return option(func(c *telemetry.Config) { c.QueueTimeout = d })
}
