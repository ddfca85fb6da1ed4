package main

import (
	"cmp"
	"time"
)

// kind is one kind of work, with the libraries that do it.
type kind struct {
	name      string
	says      string        // describes the work
	cell      cell          // fields that are not set are 1, or zero
	way       time.Duration // time to the server, and the same back
	monitored bool          // somebody subscribes to every channel, as monitoring tools do
	rounds    int           // 0: the number of rounds of the run
	libraries []string
}

var (
	inGo   = []string{"floor", "redlatch mutex", "redlatch fair", "redlatch semaphore", "redsync", "bsm/redislock", "rueidislock"}
	waits  = []string{"redlatch mutex", "redlatch fair", "redsync", "bsm/redislock", "rueidislock", "etcd", "RLock", "RFairLock"}
	all    = append(append([]string{"bare calls", "bare permits"}, inGo...), "etcd", "RLock", "RFairLock", "RPermitExpirableSemaphore")
	onGo   = []string{"floor", "redlatch mutex", "redlatch fair", "redlatch semaphore", "redsync", "bsm/redislock"}
	onJava = []string{"RLock", "RFairLock", "RPermitExpirableSemaphore"}
)

var rows = []kind{
	{name: "alone", says: "one goroutine, one name that nobody else wants", libraries: all},
	{name: "own names, 64", says: "64 goroutines of one process, each with a name of its own", cell: cell{Goroutines: 64}, libraries: all},
	{name: "own names, 512", says: "512 of them", cell: cell{Goroutines: 512}, libraries: inGo},
	{name: "own names, 64, AutoPipeline", says: "64 of them, through the AutoPipeline of go-redis", cell: cell{Goroutines: 64, Batched: true}, libraries: append([]string{"bare calls"}, onGo...)},
	{name: "one name, 64", says: "64 goroutines of one process want one name", cell: cell{Goroutines: 64, Names: 1}, libraries: append([]string{"bare calls", "redlatch semaphore"}, waits...)},
	{name: "one name, 64, 1 ms", says: "the same, with a millisecond of work", cell: cell{Goroutines: 64, Names: 1, Hold: time.Millisecond}, libraries: []string{"bare calls", "redlatch mutex", "bsm/redislock"}},
	{name: "one name, 4 × 16", says: "4 processes of 16 goroutines want one name", cell: cell{Processes: 4, Goroutines: 16, Names: 1}, libraries: waits},
	{name: "one name, 4 × 16, 1 ms", says: "the same, with a millisecond of work", cell: cell{Processes: 4, Goroutines: 16, Names: 1, Hold: time.Millisecond}, libraries: waits},
	{name: "one name, 8 × 8, 1 ms", says: "8 processes of 8 goroutines, with a millisecond of work", cell: cell{Processes: 8, Goroutines: 8, Names: 1, Hold: time.Millisecond}, libraries: []string{"redlatch mutex", "redlatch fair", "rueidislock"}},
	{name: "one name, 4 × 1", says: "4 processes of one goroutine want one name", cell: cell{Processes: 4, Names: 1}, libraries: waits},
	{name: "fair hand-over, 10", says: "10 goroutines of 4 clients in the queue, a millisecond of work", cell: cell{Clients: 4, Goroutines: 10, Names: 1, Hold: time.Millisecond}, libraries: []string{"redlatch fair", "RFairLock"}},
	{name: "fair hand-over, 5000", says: "5,000 of them", cell: cell{Clients: 4, Goroutines: 5000, Names: 1, Hold: time.Millisecond}, libraries: []string{"redlatch fair"}},
	{name: "permits, 8 of 64", says: "64 goroutines of 4 processes share 8 permits, a millisecond of work", cell: cell{Processes: 4, Goroutines: 16, Names: 1, Permits: 8, Hold: time.Millisecond}, libraries: []string{"redlatch semaphore", "RPermitExpirableSemaphore"}},
	{name: "contended names, 10,000", says: "2 processes of 10,000 goroutines; each name is wanted by one of either", cell: cell{Processes: 2, Goroutines: 10_000, Names: 10_000}, libraries: []string{"redlatch mutex", "redlatch fair", "redsync", "rueidislock"}},
	{name: "alone, 1 ms away", says: "one goroutine, half a millisecond to the server and half a millisecond back", way: 500 * time.Microsecond, libraries: inGo},
	{name: "own names, 64, 1 ms away", says: "64 goroutines with names of their own, as far away", way: 500 * time.Microsecond, cell: cell{Goroutines: 64}, libraries: inGo},
	{name: "alone, monitored", says: "one goroutine, beside a subscriber of every channel", monitored: true, libraries: []string{"floor", "redlatch mutex"}},
	{name: "alone, cluster", says: "one goroutine, on a cluster of three masters", cell: cell{Cluster: true}, libraries: append(append([]string{}, onGo...), onJava...)},
	{name: "own names, 64, cluster", says: "64 goroutines with names of their own, on a cluster of three masters", cell: cell{Cluster: true, Goroutines: 64}, libraries: onGo},
	{name: "held, 100,000", says: "100,000 locks are held for 20 s", cell: cell{Keep: 100_000, Goroutines: 64, Measure: 20 * time.Second}, rounds: 1, libraries: []string{"redlatch mutex"}},
	{name: "names, 1,000,000", says: "a million names are locked and unlocked once", cell: cell{Once: 1_000_000, Goroutines: 256}, rounds: 1, libraries: []string{"redlatch mutex"}},
}

// complete sets the fields that a row does not set.
func (r kind) complete(l library, s settings) cell {
	c := r.cell
	c.Row, c.Library = r.name, l.name
	c.Processes, c.Clients, c.Goroutines = max(c.Processes, 1), max(c.Clients, 1), max(c.Goroutines, 1)
	if l.name == etcds.name && c.Names == 1 {
		c.Clients = c.Goroutines // see etcdClient.lock
	}
	c.Warm, c.Measure = s.warm, cmp.Or(c.Measure, s.measure)
	if l.module == javaModule && !s.smoke {
		c.Warm += 2 * time.Second // until the JVM has compiled the code that it runs
	}
	if s.smoke {
		c.Measure, c.Keep, c.Once = s.measure, c.Keep/100, c.Once/1000
	}
	return c
}
