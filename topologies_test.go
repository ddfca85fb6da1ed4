//go:build topologies

package redlatch_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: every primitive keeps every promise of the suite on the topologies that
// people run. make test-topologies runs it. The other tests use a cluster of one node.

// subjects are the primitives as the suite sees them.
var subjects = map[string]func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject{
	"mutex": stage.MutexOn, "fair mutex": stage.FairOn, "semaphore of one": stage.SemaphoreOfOneOn,
}

// Three masters with a replica each.
func TestEveryPrimitiveOnThreeMasters(t *testing.T) {
	t.Parallel()
	bed := redistest.StartCluster(t, 3, 1)
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, subject(func(testing.TB) redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{bed.Nodes[0].Addr()}})
			}))
		})
	}
}

// A master with two replicas, which three sentinels watch.
func TestEveryPrimitiveBehindSentinels(t *testing.T) {
	t.Parallel()
	bed := redistest.StartWatched(t)
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, subject(func(testing.TB) redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: bed.Name, SentinelAddrs: bed.Addrs})
			}))
		})
	}
}

// The slot of a lock moves to another master while a client waits for Redisson. The client follows
// it, and the message there wakes it.
func TestAWaiterFollowsAShardedChannel(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	if strings.HasPrefix(c.Nodes[0].Version(), "6.") {
		t.Skip("left out: Redis before 7 has no sharded channels")
	}
	names, slot := namesOfOneSlot(t, 1)
	waiter := waitsForRedisson(t, c, names[0], c.Nodes[0])
	m := beginMigration(t, c, slot)
	m.end()
	awaitShardListener(t, names[0], m.target)
	require.NoError(t, m.target.Control().Del(t.Context(), names[0]).Err())
	require.NoError(t, m.target.Control().SPublish(t.Context(), key.ForMutex(names[0]).Channel, "0").Err())
	h := stage.Within(t, waiter, "the message on the new node wakes the waiter")
	require.NotNil(t, h)
	require.NoError(t, h.Unlock(t.Context()))
}
