package semaphore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/semaphore"
)

func inUse(t testing.TB, s *semaphore.Semaphore) semaphore.Info {
	t.Helper()
	info, err := s.Inspect(context.Background())
	require.NoError(t, err)
	return info
}

// onlyLimitOf asserts that Redis has only the limit of a semaphore.
func onlyLimitOf(t testing.TB, rdb redis.UniversalClient, name string) {
	t.Helper()
	k := key.ForSemaphore(name)
	members, err := rdb.ZRange(context.Background(), k.Permits, 0, -1).Result()
	require.NoError(t, err)
	members = slices.DeleteFunc(members, func(m string) bool { return m == "resized" }) // of a semaphore that was resized
	require.ElementsMatch(t, []string{"limit", "declared"}, members)
	n, err := rdb.Exists(context.Background(), k.Holders, k.Queue, k.Alive).Result()
	require.NoError(t, err)
	require.Zero(t, n)
}
