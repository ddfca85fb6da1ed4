package benchmarks

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// BenchmarkAlone is one goroutine that locks and unlocks one name, while nobody else
// wants it: on a single server where somebody subscribes to every channel, as
// monitoring tools do, and in the cluster that REDIS_CLUSTER names. x-single is the
// ratio to the same turns on the single server, measured just before.
func BenchmarkAlone(b *testing.B) {
	b.Run("monitored", func(b *testing.B) {
		alone(b, func(single *redis.Client) redis.UniversalClient {
			monitor := single.PSubscribe(b.Context(), "*")
			b.Cleanup(func() { _ = monitor.Close() })
			if _, err := monitor.Receive(b.Context()); err != nil {
				b.Fatal(err)
			}
			go func() {
				for range monitor.Channel() { // Redis ends a connection that is not read
				}
			}()
			return single
		})
	})
	b.Run("cluster", func(b *testing.B) {
		nodes := os.Getenv("REDIS_CLUSTER")
		if nodes == "" {
			b.Fatal("set REDIS_CLUSTER to nodes of a cluster to be measured on, for instance localhost:7000,localhost:7001")
		}
		alone(b, func(*redis.Client) redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(nodes, ",")})
			b.Cleanup(func() { _ = rdb.Close() })
			return rdb
		})
	})
}

// alone compares turns on what other makes of the single server with turns on that.
func alone(b *testing.B, other func(single *redis.Client) redis.UniversalClient) {
	single := connect(b)
	base := turns(b, single, b.N)
	rdb := other(single)
	b.ResetTimer()
	took := turns(b, rdb, b.N)
	b.StopTimer()
	b.ReportMetric(float64(took)/float64(base), "x-single")
}

// turns is how long n turns take, after some that do not count: at first a client
// finds out who listens.
func turns(b *testing.B, rdb redis.UniversalClient, n int) time.Duration {
	const warm = 300
	locks, err := redlatch.New(rdb)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close(context.Background())
	l := ours{locks}
	for range warm {
		turn(b, l, "bench")
	}
	begin := time.Now()
	for range n {
		turn(b, l, "bench")
	}
	return time.Since(begin)
}
