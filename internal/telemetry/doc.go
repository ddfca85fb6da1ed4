// Package telemetry has the instruments of redlatchprom and redlatchotel: their names, units,
// labels and buckets, and which event changes which of them. Both modules use it, so they cannot
// differ.
//
//	event ──▶ Tally.Updates ──▶ updates of counters and histograms ──▶ the library of the module
//	collection ──▶ Tally.Read ──▶ values of gauges ──▶ the library of the module
//	go-redis ──▶ scripthook ──▶ updates about scripts ──▶ the library of the module
//
// It depends on no library for metrics.
package telemetry
