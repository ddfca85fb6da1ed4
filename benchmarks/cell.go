package main

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// cell says what the processes of one measurement do. Processes of this program get it as JSON, and
// a JVM gets it field by field.
type cell struct {
	Library string
	Row     string

	Addrs   []string // one server, or the nodes of a cluster
	Cluster bool
	Batched bool // through the AutoPipeline of go-redis

	Processes  int
	Clients    int // for each process
	Goroutines int // for each process
	Names      int // 1: all use one name; 0: each goroutine has its own; more: taken in turn
	Permits    int // of the semaphore; 0: used as a mutex
	Hold       time.Duration

	Keep int // number of locks to take and hold, instead of turns
	Once int // number of names to lock and unlock once, instead of turns

	Warm, Measure time.Duration

	Process int // the number of this process
}

// result is the measurement of one process.
type result struct {
	Turns   []int   // for each goroutine
	Waits   []int64 // µs for each turn, until the lock was there
	Unmet   []int64 // µs so far, for each goroutine that still waited at the end
	Handed  []int64 // µs from an Unlock to the return of the next Lock, with one name
	Elapsed time.Duration

	CPU    time.Duration // of the process
	Allocs uint64        // objects; 0 if not known
	Bytes  uint64
	Heap   uint64 // of the locks that are held
}

// outcome is the result of a cell in one round, from its processes and the server.
type outcome struct {
	PerSecond float64 // turns
	// In µs. A waiter that still waits at the end counts with the time so far.
	WaitP50, WaitP99, WaitMax float64
	HandedP50                 float64 // µs; 0 if not measured
	Jain                      float64 // over goroutines
	JainClients               float64 // over processes

	// For one turn.
	Commands   float64 // of Redis, including those inside scripts
	Scripts    float64
	ScriptTime float64 // µs of the server, in the commands that the library sent
	ServerCPU  float64 // µs
	ClientCPU  float64 // µs
	Allocs     float64
	Bytes      float64

	// If the cell keeps locks, or locks names once.
	HeapEach   float64 // bytes of the client for a lock that is held
	MemoryEach float64 // bytes of the server for a name
	ClientLoad float64 // of a core
	ServerLoad float64
}

// merge makes the outcome of a cell from the results of its processes and the usage of the server.
func merge(c cell, results []result, used server.Usage) outcome {
	var turns, byProcess []int
	var waits, handed []int64
	var o outcome
	var sum int
	var cpu time.Duration
	var allocs, bytes uint64
	for _, r := range results {
		turns = append(turns, r.Turns...)
		waits = append(append(waits, r.Waits...), r.Unmet...)
		handed = append(handed, r.Handed...)
		n := 0
		for _, t := range r.Turns {
			n += t
		}
		byProcess = append(byProcess, n)
		sum += n
		o.PerSecond += float64(n) / r.Elapsed.Seconds()
		cpu += r.CPU
		allocs += r.Allocs
		bytes += r.Bytes
	}
	slices.Sort(waits)
	slices.Sort(handed)
	o.WaitP50, o.WaitP99, o.WaitMax = percentile(waits, 50), percentile(waits, 99), percentile(waits, 100)
	o.HandedP50 = percentile(handed, 50)
	o.Jain, o.JainClients = jain(turns), jain(byProcess)
	each := func(total float64) float64 { return total / float64(max(sum, 1)) }
	o.Commands, o.Scripts = each(float64(used.Commands)), each(float64(used.Scripts))
	o.ScriptTime, o.ServerCPU = each(used.Sent), each(used.CPU)
	o.ClientCPU = each(float64(cpu.Microseconds()))
	o.Allocs, o.Bytes = each(float64(allocs)), each(float64(bytes))
	if n := c.Keep + c.Once; n > 0 {
		elapsed := results[0].Elapsed
		o.HeapEach, o.MemoryEach = float64(results[0].Heap)/float64(n), used.Memory/float64(n)
		o.ClientLoad, o.ServerLoad = float64(cpu)/float64(elapsed), used.CPU*1e3/float64(elapsed)
	}
	return o
}

// percentile is for values in order. It is 0 if there are none.
func percentile(sorted []int64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)*p/100, len(sorted)-1)])
}

// jain is Jain's index of fairness. It is 1 if all got the same (Jain, Chiu, Hawe, 1984).
func jain(turns []int) float64 {
	var sum, squares float64
	for _, n := range turns {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(turns)) * squares)
}
