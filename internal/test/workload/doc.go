// Package workload drives a lock by a plan of steps, and records the answers that it gets, for the
// checks of package check. It knows neither tests nor servers. The same actors work in virtual
// time, against a server with faults, and in processes that are killed.
//
// A primitive joins as a [Lock], which most mutexes are already, or as [Units], of which actors
// take more or less. A library of others also brings its [Meaning] of errors.
package workload
