package fair_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

func TestFairMutexInACluster(t *testing.T) { stage.InACluster(t, stage.FairOn) }

// The fair mutex keeps them too, and serves waiters of all clients in order.
func TestFairMutex(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		locktest.Run(t, stage.FairOn(func(t testing.TB) redis.UniversalClient { return b.Client(t) }))
	})
}
