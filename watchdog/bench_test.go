//go:build unix

package watchdog

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func answerAll(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return yes(b), nil }

// What every uncontended lock and unlock pays here. With 0, 100 and 100,000
// others held.
func BenchmarkWatchStop(b *testing.B) {
	for _, held := range []int{0, 100, 100_000} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			w := New(Config{Renew: answerAll})
			defer w.Close()
			hold(w, held)
			s := spec("a", nil)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s.Sent = time.Now()
				w.Watch(s).Stop(bg)
			}
		})
	}
}

func BenchmarkWatchStopParallel(b *testing.B) {
	w := New(Config{Renew: answerAll})
	defer w.Close()
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		s := spec("a", nil)
		for pb.Next() {
			s.Sent = time.Now()
			w.Watch(s).Stop(bg)
		}
	})
}

func BenchmarkTrusted(b *testing.B) {
	w := New(Config{Renew: answerAll})
	defer w.Close()
	l := w.Watch(spec("a", nil))
	for range b.N {
		if !l.Trusted() {
			s := time.Now()
			l.MarkRenewed(s, lease)
		}
	}
}

// What 100,000 held leases take: bytes each, without their keys, and the part
// of one core that their renewal keeps busy, without Redis.
func BenchmarkHold100000(b *testing.B) {
	const n = 100_000
	for range b.N {
		before := heapBytes()
		w := New(Config{Renew: answerAll})
		leases := hold(w, n)
		b.ReportMetric(float64(heapBytes()-before)/n, "B/lease")
		time.Sleep(every / 2) // the first are due then
		cpu, start := cpuTime(), time.Now()
		time.Sleep(every)
		b.ReportMetric(100*(cpuTime()-cpu).Seconds()/time.Since(start).Seconds(), "%core")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		runtime.KeepAlive(leases)
		w.Close()
	}
}

// hold watches n leases, granted now, under one key.
func hold(w *Watchdog, n int) []*Lease {
	leases := make([]*Lease, n)
	for i := range leases {
		leases[i] = w.Watch(spec("held", nil))
	}
	return leases
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
