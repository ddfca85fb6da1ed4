package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestEmbeddedKeysExpireByTheClock(t *testing.T) {
	t.Parallel()
	m := redistest.Embedded(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	require.NoError(t, rdb.Set(ctx, "k", "v", 10*time.Millisecond).Err())
	require.Eventually(t, func() bool { return rdb.Exists(ctx, "k").Val() == 0 }, time.Minute, time.Millisecond)
}
