package interop_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// cluster is three nodes that share the slots.
type cluster struct{ *redistest.Cluster }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "5000")}
}

func (c *cluster) addr() string { return c.Nodes[0].Addr() }

// listeners counts the clients that listen to the channel of a name on its shard, and those that
// listen as on a single server.
func (c *cluster) listeners(t *testing.T, name string) (sharded, plain int64) {
	t.Helper()
	for _, node := range c.Nodes {
		if c.hasShards() {
			n, err := node.Control().PubSubShardNumSub(t.Context(), channelOf(name)).Result()
			require.NoError(t, err)
			sharded += n[channelOf(name)]
		}
		plain += listeners(t, node.Control(), name)
	}
	return sharded, plain
}

// hasShards reports whether the servers know sharded channels, as Redis 7 and later do.
func (c *cluster) hasShards() bool {
	return c.Nodes[0].Control().PubSubShardNumSub(context.Background(), "x").Err() == nil
}

// Both sides use the same node, exclude each other there, and count together.
func TestCluster(t *testing.T) {
	t.Parallel()
	r := java(t)
	c := newCluster(t)
	rdb := c.Client(t)
	locks := locksOn(t, rdb, redlatch.WithPollInterval(50*time.Millisecond))
	service := r.open(t, c.addr(), redissonOptions{mode: "cluster"})
	holder, other := service.thread("holds"), service.thread("waits")
	for i := range 6 { // on each of the three nodes
		name := redistest.Name(t) + strings.Repeat("x", i)
		if i%2 == 1 {
			name = "{" + name + "}:tagged"
		}
		m := locks.Mutex(name)
		holder.lock(name)
		require.Equal(t, holder.must("me"), refused(t, m).Holder)
		got := waits(t, m)
		holder.unlock(name)
		h := granted(t, got).hold
		require.False(t, other.tries(name))
		unlock(t, h)
		require.Greater(t, other.number("fenced.lock", name), h.Fence())
		other.unlock(name)
	}
}

// In a cluster of Redis 7 or later, Redisson listens to sharded channels. Nevertheless the message
// of Go wakes up its waiters, because nothing else ends their wait.
func TestClusterJavaIsWokenByGo(t *testing.T) {
	t.Parallel()
	r := java(t)
	c := newCluster(t)
	for _, sharded := range []string{"AUTO", "OFF"} {
		next := r.open(t, c.addr(), redissonOptions{mode: "cluster", sharded: sharded}).thread("waits")
		m := locksOn(t, c.Client(t), redlatch.WithLease(never)).Mutex(redistest.Name(t))
		for _, free := range []func(h *lock.Hold){
			func(h *lock.Hold) { unlock(t, h) },
			func(h *lock.Hold) { _, err := m.ForceRelease(t.Context(), h.ID()); require.NoError(t, err) },
		} {
			h := mustLock(t, t.Context(), m)
			before := scripts(t, c.Nodes...)
			got := next.begin("lock", "lock", m.Name(), millis(never))
			asleep(t, before, func() bool {
				onShard, plain := c.listeners(t, m.Name())
				if sharded == "AUTO" && c.hasShards() {
					return onShard == 1 && plain == 0
				}
				return onShard == 0 && plain == 1
			}, c.Nodes...)
			free(h)
			require.Empty(t, next.await(got, "is woken").err)
			next.unlock(m.Name())
		}
	}
}

// With the defaults of Redisson in a cluster, and without sharding, a message of Java wakes a Go
// waiter that would not poll. On servers without sharded channels, Redisson uses the others.
func TestClusterGoIsWokenByJava(t *testing.T) {
	t.Parallel()
	r := java(t)
	c := newCluster(t)
	for _, mode := range []string{"AUTO", "OFF"} {
		holder := r.open(t, c.addr(), redissonOptions{mode: "cluster", sharded: mode}).thread("holds")
		locks := locksOn(t, c.Client(t), redlatch.WithLease(never), redlatch.WithPollInterval(never))
		var delays []time.Duration
		for range 10 {
			m := locks.Mutex(redistest.Name(t)) // a client that has waited for it before may still listen
			holder.leased(m.Name(), never)
			refused(t, m)
			before := scripts(t, c.Nodes...)
			got := waits(t, m)
			asleep(t, before, func() bool {
				sharded, plain := c.listeners(t, m.Name())
				return plain == 1 && (sharded == 1 || !c.hasShards())
			}, c.Nodes...)
			released := holder.do("unlock", "lock", m.Name())
			require.Empty(t, released.err)
			g := granted(t, got)
			delays = append(delays, g.at.Sub(released.begun))
			unlock(t, g.hold)
		}
		slices.Sort(delays)
		t.Logf("in a cluster, sharding %s, from the unlock in Java to the lock in Go: %v", mode, delays)
	}
}

// Four workers of Go and four of Java hold a lock of a cluster for 50 ms, and ask again
// immediately. Redisson has its defaults. Beside one client of Go, neither side gets less than a
// quarter of the turns, and nobody waits longer than ten seconds. One side gets about two thirds at
// most there, so a quarter of several hundred turns is far from chance. Beside four clients of Go,
// Java gets turns, but sometimes less than a quarter.
func TestClusterBothLanguagesGetTurns(t *testing.T) {
	t.Parallel()
	const workers, enough, longest = 4, 50, 10 * time.Second
	r := java(t)
	c := newCluster(t)
	for _, clients := range []int{1, workers} {
		name := redistest.Name(t)
		var each []*reentrant.Mutex
		for range clients {
			m := locksOn(t, c.Client(t)).Mutex(name)
			each = append(each, slices.Repeat([]*reentrant.Mutex{m}, workers/clients)...)
		}
		var all javaLoop
		for range 2 {
			all.start(r.open(t, c.addr(), redissonOptions{mode: "cluster"}), workers/2, name, endless)
		}
		begun := time.Now()
		loop := startGoLoop(t, each...)
		loop.awaitMore(t, make([]int, workers), enough)
		took := time.Since(begun)
		all.stop()
		loop.stop()
		ofGo, ofJava := sumOf(loop.cycles()), sumOf(all.cycles(t))
		t.Logf("Go in %d clients: in %v, Go made %d cycles and Java %d: %d %% for Go; the longest wait of Go was %v, and of Java %v",
			clients, took, ofGo, ofJava, 100*ofGo/(ofGo+ofJava), loop.longest, all.longest())
		require.Positive(t, ofJava)
		if clients > 1 {
			continue
		}
		require.GreaterOrEqual(t, 4*ofGo, ofGo+ofJava, "Go gets a quarter of the turns")
		require.GreaterOrEqual(t, 4*ofJava, ofGo+ofJava, "Java gets a quarter of the turns")
		require.Less(t, loop.longest, longest, "nobody in Go waits longer")
		require.Less(t, all.longest(), longest, "nobody in Java waits longer")
	}
}
