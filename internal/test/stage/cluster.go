package stage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// NamesOfShard returns n names of one of three masters.
func NamesOfShard(shard, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("door", i); ShardOf(name) == shard {
			names = append(names, name)
		}
	}
	return names
}

// ShardOf returns which of three masters has the slot of a key. The second one begins with slot
// 5461, and the third with 10922.
func ShardOf(k string) int { return (3*(key.Slot(k)+1) - 1) / 16384 }

// ClusterOfOne starts a cluster of one node, and returns how to connect to it.
func ClusterOfOne(t *testing.T) (dial func() *redis.ClusterClient) {
	s := redistest.Start(t, "--cluster-enabled", "yes")
	ctx := context.Background()
	require.NoError(t, s.Control().ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := s.Control().ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, time.Minute, 5*time.Millisecond)
	return func() *redis.ClusterClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	}
}
