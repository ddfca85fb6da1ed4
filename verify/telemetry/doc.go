// Package telemetry has tests of redlatchprom and redlatchotel together, which need the exporter of
// OpenTelemetry and the parser of Prometheus. Programs that use the two modules do not need these.
package telemetry
