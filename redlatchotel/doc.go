// Package redlatchotel exports what redlatch does with OpenTelemetry, as metrics and as traces.
//
// Metrics and Traces are observers of clients, and independent of each other:
//
//	metrics, err := redlatchotel.NewMetrics() // with the global meter provider
//	traces, err := redlatchotel.NewTraces()   // with the global tracer provider
//	rdb.AddHook(metrics.RedisHook())          // optional: the duration of scripts
//	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics), redlatch.WithObserver(traces))
//
// # Metrics
//
// The page docs/metrics.md lists the metrics. The module redlatchprom makes the same metrics for
// Prometheus without OpenTelemetry, and has a board for Grafana and alert rules. After the
// translation of the Prometheus exporter, the metrics of both modules have the same names, types
// and labels, so the board serves both. The name of a lock is not an attribute, because there may
// be millions of names. WithNameLabel maps names to a small set.
//
// # Traces
//
// Each wait has a span "redlatch.wait", and each grant that a call returned has a span
// "redlatch.hold", with a link to its wait. The parent of both is the span of the context that
// Lock, Acquire or Do got. A re-entry has neither. The span of a wait says how it ended, and its
// place in the queue. The span of a hold says how it ended, and its fence. No attribute has a name,
// an id or the text of an error, because these may be confidential or may be a key to a lock.
// WithSpanName adds names.
//
// # What it costs
//
// The client calls observers in a goroutine of its own, so no call waits for them. Observers that
// panic or block do not affect a lock; see package event. If events were dropped, the open spans of
// holds end early, with the attribute redlatch.events_dropped.
//
// # Versions
//
// Use the version of this module that belongs to the version of redlatch: it uses internal packages
// of redlatch.
package redlatchotel
