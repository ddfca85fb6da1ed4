//go:build topologies

package redlatch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: the clocks of the nodes of a cluster differ by three seconds or more.

const (
	skew   = 3 * time.Second
	behind = 20 * time.Second // so far that the clock certainly has not caught up when the next fence is due
)

// startSkewed starts a cluster whose nodes have clocks that are so far ahead: first those of the
// masters, and then those of their replicas.
func startSkewed(t *testing.T, masters int, ahead ...time.Duration) *redistest.Cluster {
	t.Helper()
	var nodes []*redistest.Server
	for _, d := range ahead {
		nodes = append(nodes, redistest.StartSkewed(t, d, "--cluster-enabled", "yes"))
	}
	for i, node := range nodes {
		now, err := node.Control().Time(t.Context()).Result()
		require.NoError(t, err)
		require.InDelta(t, ahead[i].Seconds(), time.Until(now).Seconds(), 1, "the clock of the server")
	}
	return redistest.NewCluster(t, masters, nodes)
}

// Two clients use locks on all masters at the same time. Nobody is granted a lock that another has,
// fences grow, and no lease ends before trust does.
func TestClocksOfMastersDiffer(t *testing.T) {
	t.Parallel()
	c := startSkewed(t, 3, 0, skew, 0)
	alone := c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }) // lone callers send by themselves
	clients := []*redlatch.Client{stage.LocksOn(t, c.Client(t)), stage.LocksOn(t, alone)}
	ctx, cancel := context.WithTimeout(t.Context(), stage.Guard)
	defer cancel()
	var all sync.WaitGroup
	for shard := range 3 {
		for i, name := range stage.NamesOfShard(shard, 4) {
			var inside atomic.Int32
			var mu sync.Mutex
			var last int64
			for _, locks := range clients {
				all.Go(func() {
					for range 50 {
						h, err := []func(context.Context) (*lock.Hold, error){locks.Mutex(name).Lock, locks.FairMutex(name).Lock}[i%2](ctx)
						if !assert.NoError(t, err) {
							return
						}
						assert.EqualValues(t, 1, inside.Add(1), "granted twice")
						mu.Lock()
						assert.Greater(t, h.Fence(), last, "fences grow")
						last = h.Fence()
						mu.Unlock()
						left, err := c.Nodes[shard].Control().PTTL(ctx, name).Result()
						assert.NoError(t, err)
						assert.LessOrEqual(t, time.Until(h.TrustedUntil()), left, "the lease ends before trust does")
						inside.Add(-1)
						assert.NoError(t, h.Unlock(ctx))
					}
				})
			}
		}
	}
	all.Wait()
}

// A replica takes over whose clock is ahead of its master's, or behind it. Holds go on, nobody else
// gets their locks, and fences grow.
func TestAFailoverBetweenClocksThatDiffer(t *testing.T) {
	t.Parallel()
	c := startSkewed(t, 3, 0, behind, 0, skew, 0, 0)
	ctx := t.Context()
	client := func() *redlatch.Client {
		return stage.LocksOn(t, c.Client(t, func(o *redis.ClusterOptions) { o.Addrs = append(o.Addrs, c.Nodes[2].Addr()) }),
			redlatch.WithLease(15*time.Second))
	}
	holder, other := client(), client()
	for shard, what := range []string{"a replica that is ahead", "a replica that is behind"} {
		t.Run(what, func(t *testing.T) {
			master, replica := c.Nodes[shard], c.Nodes[3+shard]
			names := stage.NamesOfShard(shard, 2)
			held := stage.MustLock(t, ctx, holder.Mutex(names[0]))
			queued, err := holder.FairMutex(names[1]).Lock(ctx)
			require.NoError(t, err)
			got := make(chan *lock.Hold, 1)
			go func() {
				if h, err := other.FairMutex(names[1]).Lock(ctx); err == nil {
					got <- h
				}
			}()
			awaitReplica(t, master, names[0])
			master.Kill()
			require.NoError(t, replica.Control().Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err())

			for _, h := range []*lock.Hold{held, queued} {
				before := h.TrustedUntil().Add(time.Millisecond)
				require.Eventually(t, func() bool {
					next, err := other.Mutex(h.Name()).TryLock(ctx)
					require.Nil(t, next, "granted twice")
					require.Error(t, err)
					return h.TrustedUntil().After(before)
				}, stage.Guard, 10*time.Millisecond, "the holder goes on")
				stage.StillHeld(t, h)
			}
			require.Empty(t, got)
			require.NoError(t, held.Unlock(ctx))
			next := stage.MustLock(t, ctx, other.Mutex(names[0]))
			require.Greater(t, next.Fence(), held.Fence())
			if shard == 1 {
				now, err := replica.Control().Time(ctx).Result()
				require.NoError(t, err)
				require.Greater(t, held.Fence(), now.UnixMicro(), "the clock alone would make a smaller fence")
			}
			require.NoError(t, next.Unlock(ctx))
			require.NoError(t, queued.Unlock(ctx))
			next = stage.Within(t, got, "the waiter is served")
			require.Greater(t, next.Fence(), queued.Fence())
			require.NoError(t, next.Unlock(ctx))
		})
	}
}
