//go:build topologies

package redlatch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a ClusterClient that sends reads to replicas sends everything of locks to
// masters.

func TestAClusterClientThatReadsFromReplicasLocksOnMasters(t *testing.T) {
	t.Parallel()
	for what, option := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && what != "RouteRandomly" {
				t.Skip("left out: RouteRandomly shows this")
			}
			ctx := t.Context()
			c := redistest.StartCluster(t, 3, 1)
			require.Eventually(t, func() bool {
				slots := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
				require.NoError(t, c.Nodes[0].Control().Process(ctx, slots))
				return !slices.ContainsFunc(slots.Val(), func(s redis.ClusterSlot) bool { return len(s.Nodes) != 2 })
			}, stage.Guard, time.Millisecond, "the first node knows all replicas")
			rdb := c.Client(t, option)
			require.Eventually(t, func() bool {
				for _, name := range stage.NamesOfShard(0, 20) {
					require.NoError(t, rdb.Exists(ctx, name).Err())
				}
				return commands(t, c.Nodes[3], "exists")
			}, stage.Guard, time.Millisecond, "the client reads from replicas")

			holder := stage.LocksOn(t, rdb, redlatch.WithLease(2*time.Second))
			waiter := stage.LocksOn(t, c.Client(t, option), onlyMessages...)
			type line struct {
				what string
				held replicaHold
				got  chan error
			}
			var lines []line
			for shard := range 3 {
				names := stage.NamesOfShard(shard, len(replicaKinds))
				for kind, k := range replicaKinds {
					name := names[0]
					names = names[1:]
					l := line{kind + " " + name, k.acquire(t, holder, name), make(chan error, 1)}
					go func() { l.got <- k.cycle(t, waiter, name) }()
					require.Eventually(t, func() bool { return k.waits(t, c.Nodes[shard], name) }, stage.Guard, time.Millisecond, l.what)
					lines = append(lines, l)
				}
			}
			for range 3 {
				for _, l := range lines {
					before := l.held.trusted().Add(time.Millisecond)
					require.Eventually(t, func() bool { return l.held.trusted().After(before) }, stage.Guard, time.Millisecond, l.what+": is renewed")
				}
			}
			for _, l := range lines {
				require.False(t, stage.IsClosed(l.held.lost()), l.what)
				require.NoError(t, l.held.release(), l.what)
				require.NoError(t, stage.Within(t, l.got, l.what+": a message wakes the waiter"))
			}
			for _, replica := range c.Nodes[3:] {
				require.False(t, commands(t, replica, "eval", "evalsha"), "a replica got a script")
			}
		})
	}
}

// commands reports whether a server got one of these commands from a client, even if it refused it.
func commands(t *testing.T, s *redistest.Server, names ...string) bool {
	t.Helper()
	info, err := s.Control().InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, name := range names {
		if info["Commandstats"]["cmdstat_"+name] != "" {
			return true
		}
	}
	return false
}

// replicaHold is a hold or a permit.
type replicaHold struct {
	trusted func() time.Time
	lost    func() <-chan struct{}
	release func() error
}

var replicaKinds = map[string]struct {
	acquire func(t *testing.T, c *redlatch.Client, name string) replicaHold
	cycle   func(t *testing.T, c *redlatch.Client, name string) error
	waits   func(t *testing.T, master *redistest.Server, name string) bool
}{
	"mutex": {
		func(t *testing.T, c *redlatch.Client, name string) replicaHold {
			return holdOf(t, stage.MustLock(t, t.Context(), c.Mutex(name)))
		},
		func(t *testing.T, c *redlatch.Client, name string) error {
			return c.Mutex(name).Do(t.Context(), func(context.Context) error { return nil })
		},
		func(t *testing.T, master *redistest.Server, name string) bool {
			n, err := master.Control().PubSubShardNumSub(t.Context(), key.ForMutex(name).Channel).Result()
			return err != nil || n[key.ForMutex(name).Channel] > 0
		},
	},
	"fair mutex": {
		func(t *testing.T, c *redlatch.Client, name string) replicaHold {
			h, err := c.FairMutex(name).Lock(t.Context())
			require.NoError(t, err)
			return holdOf(t, h)
		},
		func(t *testing.T, c *redlatch.Client, name string) error {
			return c.FairMutex(name).Do(t.Context(), func(context.Context) error { return nil })
		},
		func(t *testing.T, master *redistest.Server, name string) bool {
			return master.Control().ZCard(t.Context(), key.ForMutex(name).Queue).Val() == 1
		},
	},
	"semaphore": {
		func(t *testing.T, c *redlatch.Client, name string) replicaHold {
			p, err := c.Semaphore(name, 1).Acquire(t.Context(), 1)
			require.NoError(t, err)
			return replicaHold{p.TrustedUntil, p.Lost, func() error { return p.Release(t.Context()) }}
		},
		func(t *testing.T, c *redlatch.Client, name string) error {
			p, err := c.Semaphore(name, 1).Acquire(t.Context(), 1)
			if err != nil {
				return err
			}
			return p.Release(t.Context())
		},
		func(t *testing.T, master *redistest.Server, name string) bool {
			return master.Control().ZCard(t.Context(), key.ForSemaphore(name).Queue).Val() == 1
		},
	},
}

func holdOf(t *testing.T, h *lock.Hold) replicaHold {
	return replicaHold{h.TrustedUntil, h.Lost, func() error { return h.Unlock(t.Context()) }}
}
