package main

import (
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// BenchmarkTurns runs a library of go-redis at one kind of work in this process. It is for
// profiles:
//
//	go test -run '^$' -bench 'Turns/^alone$/^mutex$' -benchtime 100000x -cpuprofile cpu.prof .
func BenchmarkTurns(b *testing.B) {
	for _, r := range rows {
		if r.cell.Processes > 1 || r.cell.Clients > 1 || r.cell.Keep > 0 || r.cell.Once > 0 || r.way > 0 || r.monitored {
			continue
		}
		b.Run(r.name, func(b *testing.B) {
			for _, name := range r.libraries {
				l, err := byName(name)
				if err != nil {
					b.Fatal(err)
				}
				if l.redis && l.module != javaModule {
					b.Run(metric(name), func(b *testing.B) { takeTurns(b, r, l) })
				}
			}
		})
	}
}

// takeTurns takes b.N turns, or nearly as many that each goroutine takes equally many.
func takeTurns(b *testing.B, r kind, l library) {
	nodes := 1
	if r.cell.Cluster {
		nodes = 3
	}
	s, err := server.Redis(nodes)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	c := r.complete(l, settings{})
	c.Addrs = s.Addrs
	client, err := open(c)
	if err != nil {
		b.Fatal(err)
	}
	defer client.close()
	each := (b.N + c.Goroutines - 1) / c.Goroutines
	errs := make([]error, c.Goroutines)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for turn := 0; turn < each && errs[i] == nil; turn++ {
				unlock, err := client.lock(b.Context(), c.name(i))
				if err == nil {
					time.Sleep(c.Hold)
					err = unlock(b.Context())
				}
				errs[i] = err
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(each*c.Goroutines), "ns/op")
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}
