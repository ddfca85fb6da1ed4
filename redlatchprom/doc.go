// Package redlatchprom exports what redlatch does as metrics for Prometheus.
//
// A Collector is an observer of clients and a collector of a registry:
//
//	metrics, err := redlatchprom.New()
//	prometheus.MustRegister(metrics)
//	rdb.AddHook(metrics.RedisHook()) // optional: the duration of scripts
//	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics))
//
// The page docs/metrics.md lists the metrics. This module has a board for Grafana
// (grafana/redlatch.json) and alert rules for Prometheus (alerts/redlatch.yaml). The module
// redlatchotel makes the same metrics with OpenTelemetry, so the board and the rules serve both.
//
// # Names of locks
//
// The name of a lock is not a label, because there may be millions of names. WithNameLabel maps
// names to a small set of labels.
//
// # What it costs
//
// The client calls the collector in a goroutine of its own, so no call waits for it. A collector
// that panics or blocks does not affect a lock; see package event. A collection reads Redis only
// for the queues that WatchFairMutex and WatchSemaphore add.
//
// # Versions
//
// Use the version of this module that belongs to the version of redlatch: it uses internal packages
// of redlatch.
package redlatchprom
