// Package benchmarks measures redlatch beside the bare floor: SET NX PX and a
// script that compares and deletes, the least that a lock on Redis can send. The
// figures that count are the ratios within one run; see README.md.
package benchmarks

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// locker is one contestant.
type locker interface {
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
}

func connect(b *testing.B) *redis.Client { return connectFrom(b, 0) }

// connectFrom is a client that is so far from the server, in time one way.
func connectFrom(b *testing.B, way time.Duration) *redis.Client {
	b.Helper()
	url := os.Getenv("REDIS_URL")
	if url == "" {
		b.Fatal("set REDIS_URL to a server to be measured on, for instance redis://localhost:6379")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	if way > 0 {
		options.Addr = distant(b, options.Addr, way)
	}
	rdb := redis.NewClient(options)
	b.Cleanup(func() { _ = rdb.Close() })
	flush(b, rdb)
	b.Cleanup(func() { _ = rdb.FlushDB(context.Background()).Err() })
	return rdb
}

// flushable says that the database was empty when the first benchmark came to it.
var flushable bool

// flush empties the database, unless somebody else has something in it.
func flush(b *testing.B, rdb *redis.Client) {
	b.Helper()
	if !flushable {
		n, err := rdb.DBSize(b.Context()).Result()
		if err != nil {
			b.Fatal(err)
		}
		if n > 0 {
			b.Fatalf("the database at REDIS_URL has %d keys; benchmarks flush theirs, so give them an empty one", n)
		}
		flushable = true
	}
	if err := rdb.FlushDB(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
}

// floor sends what a lock has to send, and nothing more. It does not wait: where
// the lock is held it asks again at once.
type floor struct{ rdb *redis.Client }

var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (f floor) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	token := strconv.FormatInt(time.Now().UnixNano(), 36)
	for {
		ok, err := f.rdb.SetNX(ctx, name, token, 30*time.Second).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func(ctx context.Context) error {
				return compareAndDelete.Run(ctx, f.rdb, []string{name}, token).Err()
			}, nil
		}
	}
}

type ours struct{ locks *redlatch.Client }

func newOurs(b *testing.B, rdb *redis.Client) ours {
	b.Helper()
	locks, err := redlatch.New(rdb)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	return ours{locks}
}

func (o ours) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	hold, err := o.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold.Unlock, nil
}

func contestants(b *testing.B) map[string]locker {
	rdb := connect(b)
	redlatch := newOurs(b, rdb)
	return map[string]locker{"floor": floor{rdb}, "redlatch": redlatch, "fair": fairOurs(redlatch)}
}

func turn(b *testing.B, l locker, name string) {
	ctx := context.Background()
	unlock, err := l.lock(ctx, name)
	if err != nil {
		b.Error(err)
		return
	}
	if err := unlock(ctx); err != nil {
		b.Error(err)
	}
}

// BenchmarkUncontended is one goroutine that locks and unlocks one name.
func BenchmarkUncontended(b *testing.B) {
	for _, name := range []string{"floor", "redlatch", "fair"} {
		b.Run(name, func(b *testing.B) {
			l := contestants(b)[name]
			b.ReportAllocs()
			for b.Loop() {
				turn(b, l, "bench")
			}
		})
	}
}

// spread runs b.N turns on n goroutines.
func spread(b *testing.B, n int, turn func(worker int)) {
	var wg sync.WaitGroup
	b.ResetTimer()
	for worker := range n {
		share := b.N / n
		if worker < b.N%n {
			share++
		}
		wg.Go(func() {
			for range share {
				turn(worker)
			}
		})
	}
	wg.Wait()
}

// BenchmarkDistinct is 64 goroutines, each with a name of its own.
func BenchmarkDistinct(b *testing.B) {
	for _, name := range []string{"floor", "redlatch"} {
		b.Run(name, func(b *testing.B) {
			l := contestants(b)[name]
			spread(b, 64, func(worker int) { turn(b, l, "bench:"+strconv.Itoa(worker)) })
		})
	}
}

// BenchmarkContended is 64 goroutines that want one name, with no work inside: all
// in one process, or as eight clients of eight, as eight processes would be. The
// floor has no way to wait but to ask, so it is given one goroutine here: the best
// it could do.
func BenchmarkContended(b *testing.B) {
	for _, c := range []struct {
		name             string
		clients, workers int // workers of each client
	}{
		{"floor", 1, 1},
		{"redlatch", 1, 64}, {"fair", 1, 64},
		{"redlatch", 8, 8}, {"fair", 8, 8},
	} {
		b.Run(fmt.Sprintf("%s/clients=%d", c.name, c.clients), func(b *testing.B) {
			clients := make([]locker, c.clients)
			for i := range clients {
				clients[i] = contestants(b)[c.name]
			}
			rdb := connect(b)
			before := commands(b, rdb)
			turns := race(b, c.clients*c.workers, func(worker int) { turn(b, clients[worker%c.clients], "bench") })
			b.ReportMetric(float64(commands(b, rdb)-before)/float64(b.N), "scripts/turn")
			b.ReportMetric(jain(turns), "jain")
		})
	}
}

// race is b.N turns by so many workers, who take them from one budget: how many
// each of them got says how evenly they were served.
func race(b *testing.B, workers int, turn func(worker int)) (turns []int) {
	turns = make([]int, workers)
	var budget atomic.Int64
	budget.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for worker := range workers {
		wg.Go(func() {
			for budget.Add(-1) >= 0 {
				turn(worker)
				turns[worker]++
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	return turns
}

// jain is Jain's index of fairness: 1 when all got the same.
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

// BenchmarkHeld measures what one of many held locks costs in memory.
func BenchmarkHeld(b *testing.B) {
	rdb := connect(b)
	o := newOurs(b, rdb)
	ctx := context.Background()
	unlocks := make([]func(context.Context) error, 0, b.N)
	before := heap()
	b.ResetTimer()
	for i := range b.N {
		unlock, err := o.lock(ctx, "bench:"+strconv.Itoa(i))
		if err != nil {
			b.Fatal(err)
		}
		unlocks = append(unlocks, unlock)
	}
	b.StopTimer()
	b.ReportMetric(float64(heap()-before)/float64(b.N), "B/held")
	for _, unlock := range unlocks {
		if err := unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
