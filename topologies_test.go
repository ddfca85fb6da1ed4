//go:build topologies

package redlatch_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The goal of this file: every primitive keeps every promise of the suite on the topologies that people
// run. make test-topologies runs it. The other tests use a cluster of one node.

// subjects are the primitives as the suite sees them.
var subjects = map[string]func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject{
	"mutex": mutexOn, "fair mutex": fairOn, "semaphore of one": semaphoreOfOneOn,
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
