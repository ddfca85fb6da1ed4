package benchmarks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// fairOurs is the fair mutex as a contestant.
type fairOurs struct{ locks *redlatch.Client }

func (o fairOurs) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	hold, err := o.locks.FairMutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold.Unlock, nil
}

// bareHandOver is the least that a release which grants to the next has to do: the
// lock of the one goes, that of the other is written, and it is told.
var bareHandOver = redis.NewScript(`
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], 30000)
return redis.call('PUBLISH', 'bench:bare', ARGV[1])`)

// bare is the median of bare round trips, the unit of the other figures, and of bare
// hand-overs in that unit: from the call of that script until another client has read
// the message. One of each in turn, by clients that have slept since the last for as
// long as nap, as those have who wait.
func bare(b *testing.B, from, to *redis.Client, nap time.Duration) (roundTrip time.Duration, handOver float64) {
	b.Helper()
	ear := to.Subscribe(b.Context(), "bench:bare")
	defer ear.Close()
	if _, err := ear.Receive(b.Context()); err != nil {
		b.Fatal(err)
	}
	heard := make(chan time.Time)
	go func() {
		defer close(heard)
		for {
			if _, err := ear.ReceiveMessage(b.Context()); err != nil {
				return // closed
			}
			heard <- time.Now()
		}
	}()
	trips, overs := make([]time.Duration, 500), make([]time.Duration, 500)
	for i := range trips {
		time.Sleep(nap)
		start := time.Now()
		if err := from.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		trips[i] = time.Since(start)
		time.Sleep(nap)
		start = time.Now()
		if err := bareHandOver.Run(b.Context(), from, []string{"bench:lock"}, i).Err(); err != nil {
			b.Fatal(err)
		}
		at, open := <-heard
		if !open {
			b.Fatal("the subscription broke")
		}
		overs[i] = at.Sub(start)
	}
	return median(trips), float64(median(overs)) / float64(median(trips))
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkFairHandOver is the time from an Unlock to the next one's Lock having
// returned, in another client, while so many wait and each works for a moment:
// rt/p50 is its median in bare round trips. The waiters queue again at once, so the
// length stays. Heartbeats are long, so that they are not what is measured. With a
// server that is far, half a millisecond each way, it is messages that count; on the
// loopback it is how long goroutines and scripts take, and bare-rt, the same with
// nothing but go-redis and a script of four commands, is the least there can be.
func BenchmarkFairHandOver(b *testing.B) {
	for _, way := range []time.Duration{0, 500 * time.Microsecond} {
		for _, waiters := range []int{10, 5000} {
			b.Run(fmt.Sprintf("way=%v/waiters=%d", way, waiters), func(b *testing.B) {
				const clients = 4
				var locks [clients]*redlatch.Client
				for i := range locks {
					var err error
					locks[i], err = redlatch.New(connectFrom(b, way), redlatch.WithHeartbeat(time.Minute), redlatch.WithSelfWaitWarning(time.Hour))
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = locks[i].Close(context.Background()) })
				}
				unit, floor := bare(b, connectFrom(b, way), connectFrom(b, way), work)
				handOver(b, locks[:], connect(b), waiters, unit)
				b.ReportMetric(floor, "bare-rt")
			})
		}
	}
}

const work = 2 * time.Millisecond

func handOver(b *testing.B, locks []*redlatch.Client, rdb *redis.Client, waiters int, unit time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	first, err := locks[0].FairMutex("bench").Lock(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var unlocked atomic.Int64 // when the last Unlock was called
	var mu sync.Mutex
	var all []time.Duration
	full := make(chan struct{})
	start := time.Now()
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := locks[i%len(locks)].FairMutex("bench").Lock(ctx)
				if err != nil {
					return
				}
				took := time.Since(start) - time.Duration(unlocked.Load())
				mu.Lock()
				if all = append(all, took); len(all) == b.N {
					close(full)
				}
				mu.Unlock()
				time.Sleep(work)
				unlocked.Store(int64(time.Since(start)))
				_ = h.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	for rdb.ZCard(ctx, "redlatch:queue:{bench}").Val() < int64(waiters) {
		time.Sleep(time.Millisecond)
	}
	b.ResetTimer()
	unlocked.Store(int64(time.Since(start)))
	_ = first.Unlock(ctx)
	<-full
	b.StopTimer()
	cancel()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	p50 := median(all[:b.N])
	b.ReportMetric(float64(p50)/float64(unit), "rt/p50")
	b.ReportMetric(float64(p50.Microseconds()), "µs/p50")
}
