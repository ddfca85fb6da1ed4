//go:build topologies

package redlatch_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// handOvers measures how long locks take from one client to another.
type handOvers struct {
	mu   sync.Mutex
	took []time.Duration
	on   atomic.Bool
}

// use locks a name again and again. left is when its last holder called Unlock.
func (h *handOvers) use(ctx context.Context, lock func(context.Context) (*lock.Hold, error), left *atomic.Pointer[time.Time]) error {
	for {
		hold, err := lock(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if at := left.Load(); at != nil && h.on.Load() {
			took := time.Since(*at)
			h.mu.Lock()
			h.took = append(h.took, took)
			h.mu.Unlock()
		}
		time.Sleep(time.Millisecond)
		now := time.Now()
		left.Store(&now)
		if err := hold.Unlock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// p99 measures for so long.
func (h *handOvers) p99(long time.Duration) (p99 time.Duration, n int) {
	h.mu.Lock()
	h.took = nil
	h.mu.Unlock()
	h.on.Store(true)
	time.Sleep(long)
	h.on.Store(false)
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.took)
	return h.took[len(h.took)*99/100], len(h.took)
}

// beside is what happens beside the hand-overs.
type beside struct {
	name           string
	dies           bool // a master
	holds, waiters int  // of its locks
}

var besides = []beside{
	{"nothing", false, 500, 100},
	{"unused", true, 0, 0},
	{"dead", true, 500, 100},
}

// BenchmarkHandOversBesideADeadMaster kills one of three masters, for whose locks clients wait and
// which has holds. It compares the 99th percentile of the hand-overs of the other masters before
// that and after it, until well after the promotion. For comparison, each round also measures both
// without a kill, and kills a master that nobody uses. It prints the medians of all rounds.
func BenchmarkHandOversBesideADeadMaster(b *testing.B) {
	for _, kind := range []struct {
		name string
		of   func(*redlatch.Client, string) func(context.Context) (*lock.Hold, error)
	}{
		{"mutex", func(c *redlatch.Client, name string) func(context.Context) (*lock.Hold, error) {
			return c.Mutex(name).Lock
		}},
		{"fair", func(c *redlatch.Client, name string) func(context.Context) (*lock.Hold, error) {
			return c.FairMutex(name).Lock
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			all := map[string][]float64{}
			for b.Loop() {
				for _, what := range besides {
					before, after, n := what.measure(b, kind.of)
					b.Logf("%s: p99 before %s, after %s, of %d hand-overs", what.name, before, after, n)
					all[what.name+"-after/before"] = append(all[what.name+"-after/before"], after.Seconds()/before.Seconds())
					if what.name == "dead" {
						all["p99-before-ms"] = append(all["p99-before-ms"], before.Seconds()*1e3)
						all["p99-after-ms"] = append(all["p99-after-ms"], after.Seconds()*1e3)
					}
				}
			}
			for unit, values := range all {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func (what beside) measure(b *testing.B, lockOf func(*redlatch.Client, string) func(context.Context) (*lock.Hold, error)) (before, after time.Duration, n int) {
	c := redistest.StartCluster(b, 3, 1, "--cluster-node-timeout", "2000")
	// A benchmark cleans up after its last round. Nothing of a round may run beside the next one.
	for _, node := range c.Nodes {
		defer node.Kill()
	}
	var clients [2]*redlatch.Client
	for i := range clients {
		rdb := c.Client(b, func(o *redis.ClusterOptions) {
			o.Addrs = append(o.Addrs, c.Nodes[1].Addr(), c.Nodes[2].Addr())
		})
		clients[i] = stage.LocksOn(b, rdb)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
			defer cancel()
			_ = clients[i].Close(ctx)
			_ = rdb.Close()
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var held []*lock.Hold
	for _, name := range stage.NamesOfShard(0, what.holds) {
		h, err := clients[0].Mutex(name).Lock(ctx)
		require.NoError(b, err)
		held = append(held, h)
	}
	defer runtime.KeepAlive(held) // the client does not renew a hold that is garbage
	h := &handOvers{}
	failed := make(chan error, 100)
	for shard := 1; shard < 3; shard++ {
		for _, name := range stage.NamesOfShard(shard, 4) {
			left := &atomic.Pointer[time.Time]{}
			for _, client := range clients {
				all.Go(func() {
					if err := h.use(ctx, lockOf(client, name), left); err != nil {
						failed <- err
					}
				})
			}
		}
	}
	for _, name := range stage.NamesOfShard(0, what.waiters) { // held by the first client
		all.Go(func() { _, _ = lockOf(clients[1], name)(ctx) })
	}
	time.Sleep(2 * time.Second)
	before, _ = h.p99(6 * time.Second)
	if what.dies {
		c.Nodes[0].Kill()
	}
	after, n = h.p99(8 * time.Second)
	info, err := c.Nodes[3].Control().Info(ctx, "replication").Result()
	require.NoError(b, err)
	require.Equal(b, what.dies, strings.Contains(info, "role:master"), "whether it was promoted")
	cancel()
	all.Wait()
	require.Empty(b, failed)
	return before, after, n
}
