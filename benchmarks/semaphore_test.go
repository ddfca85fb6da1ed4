package benchmarks

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// limiter is one contestant among semaphores.
type limiter interface {
	acquire(ctx context.Context) (release func(context.Context) error, err error)
}

// polling is the semaphore of many a recipe: a sorted set of holders by the end of
// their lease, counted and added to in one script; who does not get in asks again,
// every so often.
type polling struct {
	rdb   *redis.Client
	limit int
	every time.Duration
	ids   *atomic.Int64
}

var takePlace = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], now + 30000, ARGV[1])
  return 1
end
return 0`)

func (p polling) acquire(ctx context.Context) (func(context.Context) error, error) {
	id := strconv.FormatInt(p.ids.Add(1), 10)
	for {
		got, err := takePlace.Run(ctx, p.rdb, []string{"polling"}, id, p.limit).Int()
		if err != nil {
			return nil, err
		}
		if got == 1 {
			return func(ctx context.Context) error { return p.rdb.ZRem(ctx, "polling", id).Err() }, nil
		}
		time.Sleep(p.every)
	}
}

type semaphores struct {
	locks *redlatch.Client
	limit int
}

func (s semaphores) acquire(ctx context.Context) (func(context.Context) error, error) {
	p, err := s.locks.Semaphore("bench", s.limit).Acquire(ctx, 1)
	if err != nil {
		return nil, err
	}
	return p.Release, nil
}

func use(b *testing.B, l limiter, work time.Duration) {
	ctx := context.Background()
	release, err := l.acquire(ctx)
	if err != nil {
		b.Error(err)
		return
	}
	time.Sleep(work)
	if err := release(ctx); err != nil {
		b.Error(err)
	}
}

// BenchmarkSemaphoreUncontended is one goroutine that takes a permit and gives it
// back, beside the floor of a lock, with more and more permits in other hands. The
// cost is to be the same.
func BenchmarkSemaphoreUncontended(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		l := contestants(b)["floor"]
		for b.Loop() {
			turn(b, l, "bench")
		}
	})
	for _, live := range []int{0, 10, 1000, 10_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			rdb := connect(b)
			s := semaphores{newOurs(b, rdb).locks, 20_000}
			use(b, s, 0) // makes the limit known
			fill(b, rdb, live)
			for b.Loop() {
				use(b, s, 0)
			}
		})
	}
}

// fill puts permits of others there, for an hour.
func fill(b *testing.B, rdb *redis.Client, live int) {
	end := float64(time.Now().Add(time.Hour).UnixMilli())
	for i := range live {
		if err := rdb.ZAdd(b.Context(), "redlatch:permits:{bench}", redis.Z{Score: end, Member: fmt.Sprintf("other:%d#1", i)}).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSemaphoreShared is 64 goroutines that want one of 8 permits, for a
// millisecond of work. "of-ideal" is the share of 8 permits / (work + one round
// trip) that they reach: one that gives back and one that is told could do that.
func BenchmarkSemaphoreShared(b *testing.B) {
	const goroutines, limit, work = 64, 8, time.Millisecond
	for _, c := range []struct {
		name string
		poll time.Duration // 0: does not
	}{{"redlatch", 0}, {"polling=1ms", time.Millisecond}, {"polling=10ms", 10 * time.Millisecond}, {"polling=100ms", 100 * time.Millisecond}} {
		b.Run(c.name, func(b *testing.B) {
			rdb := connect(b)
			var l limiter = polling{rdb, limit, c.poll, new(atomic.Int64)}
			if c.poll == 0 {
				l = semaphores{newOurs(b, rdb).locks, limit}
			}
			trip, _ := bare(b, rdb, connect(b), 0)
			nap := asleep(work)
			before := commands(b, rdb)
			turns := race(b, goroutines, func(int) { use(b, l, work) })
			ideal := time.Duration(b.N) * (nap + trip) / limit
			b.ReportMetric(float64(ideal)/float64(b.Elapsed()), "of-ideal")
			b.ReportMetric(float64(commands(b, rdb)-before)/float64(b.N), "scripts/turn")
			b.ReportMetric(jain(turns), "jain")
		})
	}
}

// asleep is how long a sleep of that long lasts here.
func asleep(d time.Duration) time.Duration {
	const n = 100
	start := time.Now()
	for range n {
		time.Sleep(d)
	}
	return time.Since(start) / n
}

// commands is how many scripts the server has run.
func commands(b *testing.B, rdb *redis.Client) (n int) {
	stats, err := rdb.InfoMap(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for name, line := range stats["Commandstats"] {
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			var calls int
			if _, err := fmt.Sscanf(line, "calls=%d", &calls); err != nil {
				b.Fatal(err)
			}
			n += calls
		}
	}
	return n
}
