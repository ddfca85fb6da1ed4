package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/server"
)

// BenchmarkSlices runs libraries in turn for 50 ms each, in one process, again and again. A machine
// whose speed changes from second to second changes it for all of them. Each metric is the median
// over these cycles of the ratio of two rates.
func BenchmarkSlices(b *testing.B) {
	for _, row := range []struct {
		kind      string
		libraries []string
		to        []string // the libraries that the others are compared with
	}{
		{"alone", []string{"floor", "bare calls", "bare permits", "redlatch mutex", "redlatch fair", "redlatch semaphore", "redsync", "bsm/redislock", "rueidislock"}, []string{"floor", "bare calls"}},
		{"own names, 64", []string{"floor", "bare calls", "redlatch mutex", "redlatch fair", "redlatch semaphore", "redsync", "bsm/redislock", "rueidislock"}, []string{"floor", "rueidislock"}},
		{"own names, 64, AutoPipeline", []string{"floor", "bare calls", "redlatch mutex"}, []string{"floor", "bare calls"}},
		{"one name, 64", []string{"bare calls", "redlatch mutex"}, []string{"bare calls"}},
		{"one name, 64, 1 ms", []string{"bare calls", "redlatch mutex"}, []string{"bare calls"}},
	} {
		b.Run(row.kind, func(b *testing.B) {
			i := slices.IndexFunc(rows, func(r kind) bool { return r.name == row.kind })
			rates := slicesOf(b, rows[i], row.libraries)
			for _, base := range row.to {
				for _, name := range row.libraries {
					if name != base {
						b.ReportMetric(medianRatio(rates[name], rates[base]), metric(name)+"/"+metric(base))
					}
				}
			}
			b.ReportMetric(0, "ns/op") // not reported: it only depends on the number of libraries
		})
	}
}

// slicesOf returns the rates of each library, one for each cycle.
func slicesOf(b *testing.B, r kind, names []string) map[string][]float64 {
	s, err := server.Redis(1)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	type entrant struct {
		cell
		client locker
	}
	var all []entrant
	for _, name := range names {
		l, err := byName(name)
		if err != nil {
			b.Fatal(err)
		}
		c := r.complete(l, settings{})
		c.Addrs = s.Addrs
		client, err := open(c)
		if err != nil {
			b.Fatal(err)
		}
		defer client.close()
		all = append(all, entrant{c, client})
	}
	rates := map[string][]float64{}
	for cycle := range b.N + 1 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, e := range all {
			rate, err := slice(e.cell, e.client)
			if err != nil {
				b.Fatal(err)
			}
			if cycle > 0 { // the first one warms up
				rates[e.Library] = append(rates[e.Library], rate)
			}
		}
	}
	return rates
}

// patient waits for a lock beyond the end of a slice. Some libraries leave a lock behind if the
// context ends.
type patient struct{ locker }

func (p patient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	return p.locker.lock(context.WithoutCancel(ctx), name)
}

// slice has the goroutines of a cell work for a moment, and returns the turns per second.
func slice(c cell, client locker) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	m := &measurement{cell: c, start: time.Now()}
	m.counts.Store(true)
	workers := make([]worker, c.Goroutines)
	var all sync.WaitGroup
	for i := range workers {
		workers[i] = worker{measurement: m, client: patient{client}, name: c.Library + c.name(i)}
		all.Go(func() { workers[i].run(ctx) })
	}
	all.Wait()
	turns := 0
	for _, w := range workers {
		if w.err != nil {
			return 0, w.err
		}
		turns += len(w.waits)
	}
	return float64(turns) / time.Since(m.start).Seconds(), nil
}

func medianRatio(rates, to []float64) float64 {
	ratios := make([]float64, len(rates))
	for i := range rates {
		ratios[i] = rates[i] / to[i]
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// metric is the name of a library in a metric, which has no spaces and no slash.
func metric(library string) string {
	return strings.NewReplacer(" ", "-", "bsm/", "", "redlatch ", "").Replace(library)
}
