package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// compareAndDelete is the release of the classic recipe.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// BenchmarkScripts is one acquire and one release on a real server, one after
// the other, next to the least that any lock on Redis needs: SET NX PX and a
// script that compares and deletes.
func BenchmarkScripts(b *testing.B) {
	s := startServer(b)
	rdb := dial(b, s.addr, 3, nil)
	ctx := b.Context()
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			ok, err := rdb.SetNX(ctx, "bare", "a:1", 30*time.Second).Result()
			require.NoError(b, err)
			require.True(b, ok)
			require.NoError(b, compareAndDelete.Run(ctx, rdb, []string{"bare"}, "a:1").Err())
		}
	})
	b.Run("mutex", func(b *testing.B) {
		take := lua.AcquireParams{LockKey: names.Lock, FenceKey: names.Fence, Acquisition: "a:1",
			Lease: 30 * time.Second, Holds: 1, VoidAfter: never}
		give := lua.ReleaseParams{LockKey: names.Lock, Channel: names.Channel, Acquisition: "a:1"}
		for b.Loop() {
			got, err := lua.Acquire(ctx, rdb, take)
			require.NoError(b, err)
			require.Equal(b, lua.Granted, got.Status)
			left, err := lua.Release(ctx, rdb, give)
			require.NoError(b, err)
			require.Equal(b, lua.Freed, left.Status)
		}
	})
}
