// Package workload drives a lock by a plan of steps and takes down what it was
// told, for the verdicts of package check. It knows neither tests nor servers:
// the same actors work in virtual time, against a server that is being harmed,
// and in processes that are killed.
//
// A primitive joins as a [Lock], which its mutexes mostly are already, or as [Units],
// of which actors take more or less; a library of others brings its reading of errors
// too, see [Meaning].
package workload
