package reentrant_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The reentrant mutex keeps every promise of the suite, on every server.
func TestMutex(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		locktest.Run(t, stage.MutexOn(func(t testing.TB) redis.UniversalClient { return b.Client(t) }))
	})
}

// A cluster of one node has everything that a cluster requires of its clients: slots, errors about
// slots, and another kind of client.
func TestMutexInACluster(t *testing.T) { stage.InACluster(t, stage.MutexOn) }

// InACluster runs the suite of all primitives on a cluster of one node.

// ClusterOfOne starts a cluster of one node, and returns how to connect to it.

// FairOn makes fair mutexes for the suite of all primitives.

// SemaphoreOfOneOn makes semaphores with one unit for the suite of all primitives.

// MutexOn makes mutexes for the suite of all primitives.
