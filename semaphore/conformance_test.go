package semaphore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/semaphore"
)

func TestSemaphoreOfOneInACluster(t *testing.T) { stage.InACluster(t, stage.SemaphoreOfOneOn) }

// A semaphore of one permit is a mutex without re-entry and without fences.
func TestSemaphoreOfOne(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		locktest.Run(t, stage.SemaphoreOfOneOn(func(t testing.TB) redis.UniversalClient { return b.Client(t) }))
	})
}

// Requests of several sizes, from several clients, in a cluster.
func TestSemaphoreInACluster(t *testing.T) {
	t.Parallel()
	dial, name := stage.ClusterOfOne(t), redistest.Name(t)
	sems := make([]*semaphore.Semaphore, 3)
	for i := range sems {
		rdb := dial()
		t.Cleanup(func() { _ = rdb.Close() })
		sems[i] = stage.LocksOn(t, rdb, redlatch.WithPrefix("svc:")).Semaphore(name, 4)
	}
	var work sync.WaitGroup
	var inside, most atomic.Int64
	for i := range 24 {
		work.Go(func() {
			err := sems[i%len(sems)].Do(context.Background(), 1+i%3, func(context.Context) error {
				now := inside.Add(int64(1 + i%3))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				inside.Add(-int64(1 + i%3))
				return nil
			})
			assert.NoError(t, err)
		})
	}
	work.Wait()
	require.LessOrEqual(t, most.Load(), int64(4))
	require.Zero(t, inUse(t, sems[0]).InUse)
}
