package lua_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/barecalls"
	"github.com/redlatch/redlatch/lua"
)

// compareAndDelete is the release of the classic recipe.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// BenchmarkScripts is one acquire and one release on a real server, one after
// the other, next to the least that any lock on Redis needs: SET NX PX and a
// script that compares and deletes. Of each pair it reports the time of the server
// in the commands that a client sends.
func BenchmarkScripts(b *testing.B) {
	s := startServer(b)
	rdb := dial(b, s.addr, 3, nil)
	ctx := b.Context()
	b.Run("floor", func(b *testing.B) {
		pairs(b, rdb, []string{"set", "evalsha"}, func() {
			ok, err := rdb.SetNX(ctx, "bare", "a:1", 30*time.Second).Result()
			require.NoError(b, err)
			require.True(b, ok)
			require.NoError(b, compareAndDelete.Run(ctx, rdb, []string{"bare"}, "a:1").Err())
		})
	})
	b.Run("calls of the mutex", func(b *testing.B) {
		pairs(b, rdb, []string{"evalsha"}, func() {
			require.NoError(b, barecalls.Acquire.Run(ctx, rdb, []string{names.Lock, names.Fence, names.Queue}, "a:1", 30_000, "host-1").Err())
			require.NoError(b, barecalls.Release.Run(ctx, rdb, []string{names.Lock, names.Queue}, "a:1", names.Channel).Err())
		})
	})
	b.Run("mutex", func(b *testing.B) {
		take := lua.AcquireParams{LockKey: names.Lock, FenceKey: names.Fence, QueueKey: names.Queue, Acquisition: "a:1",
			Lease: 30 * time.Second, Holds: 1, VoidAfter: never, FenceRetention: hour, Description: "host-1"}
		give := lua.ReleaseParams{LockKey: names.Lock, QueueKey: names.Queue, Channel: names.Channel, Acquisition: "a:1"}
		pairs(b, rdb, []string{"evalsha"}, func() {
			got, err := lua.Acquire(ctx, rdb, take)
			require.NoError(b, err)
			require.Equal(b, lua.Granted, got.Status)
			left, err := lua.Release(ctx, rdb, give)
			require.NoError(b, err)
			require.Equal(b, lua.Freed, left.Status)
		})
	})
	b.Run("handoff", func(b *testing.B) {
		hand := lua.TransferParams{LockKey: names.Lock, FenceKey: names.Fence, Lease: 30 * time.Second, VoidAfter: never, FenceRetention: hour}
		_, err := lua.Acquire(ctx, rdb, lua.AcquireParams{LockKey: names.Lock, FenceKey: names.Fence, QueueKey: names.Queue,
			Acquisition: "a:0", Lease: 30 * time.Second, Holds: 1, VoidAfter: never, FenceRetention: hour})
		require.NoError(b, err)
		n := 0
		pairs(b, rdb, []string{"evalsha"}, func() {
			hand.From, hand.To = fmt.Sprintf("a:%d", n), fmt.Sprintf("a:%d", n+1)
			got, err := lua.Transfer(ctx, rdb, hand)
			require.NoError(b, err)
			require.Equal(b, lua.Granted, got.Status)
			n++
		})
		require.NoError(b, rdb.Del(ctx, names.Lock).Err())
	})
	b.Run("calls of a handoff", func(b *testing.B) {
		n := 0
		pairs(b, rdb, []string{"evalsha"}, func() {
			from, to := fmt.Sprintf("a:%d", n), fmt.Sprintf("a:%d", n+1)
			require.NoError(b, barecalls.Transfer.Run(ctx, rdb, []string{names.Lock, names.Fence}, from, to, 30_000).Err())
			n++
		})
		require.NoError(b, rdb.Del(ctx, names.Lock).Err())
	})
	w := lua.Waiter{Acquisition: "a:1", Units: 1, Heartbeat: 10 * time.Second, Lease: 30 * time.Second, Description: "host-1"}
	b.Run("fair", func(b *testing.B) {
		take := lua.JoinParams{Keys: fairKeys, Waiter: w, VoidAfter: never, FenceRetention: hour, ClientChannels: key.ClientPrefix}
		give := lua.ReleaseFairParams{Keys: fairKeys, Waiter: w, Channel: names.Channel, FenceRetention: hour, ClientChannels: key.ClientPrefix}
		pairs(b, rdb, []string{"evalsha"}, func() {
			got, err := lua.Join(ctx, rdb, take)
			require.NoError(b, err)
			require.Equal(b, lua.Granted, got.Status)
			left, err := lua.ReleaseFair(ctx, rdb, give)
			require.NoError(b, err)
			require.Equal(b, lua.Freed, left.Status)
		})
	})
	b.Run("calls of the semaphore", func(b *testing.B) {
		var keys []string
		for _, k := range []any{semaphoreKeys.Permits, semaphoreKeys.Holders, semaphoreKeys.Queue, semaphoreKeys.Alive} {
			keys = append(keys, k.(string))
		}
		require.NoError(b, rdb.ZAdd(ctx, keys[0], redis.Z{Score: 8, Member: "limit"}).Err())
		pairs(b, rdb, []string{"evalsha"}, func() {
			ends := time.Now().Add(30 * time.Second).UnixMilli()
			require.NoError(b, barecalls.AcquirePermit.Run(ctx, rdb, keys, "a:1", ends, "host-1").Err())
			require.NoError(b, barecalls.ReleasePermit.Run(ctx, rdb, keys[:3], "a:1").Err())
		})
		require.NoError(b, rdb.Del(ctx, keys...).Err())
	})
	b.Run("semaphore", func(b *testing.B) {
		take := lua.AcquirePermitsParams{Keys: semaphoreKeys, Waiter: w, VoidAfter: never, Limit: 8, Retention: hour, ClientChannels: key.ClientPrefix}
		give := lua.ReleasePermitsParams{Keys: semaphoreKeys, Waiter: w, Retention: hour, ClientChannels: key.ClientPrefix}
		pairs(b, rdb, []string{"evalsha"}, func() {
			got, err := lua.AcquirePermits(ctx, rdb, take)
			require.NoError(b, err)
			require.Equal(b, lua.Granted, got.Status)
			left, err := lua.ReleasePermits(ctx, rdb, give)
			require.NoError(b, err)
			require.Equal(b, lua.Freed, left.Status)
		})
	})
}

// pairs runs a pair again and again, and reports what the server says of the commands that it
// sends: the least of many rounds, for other processes only ever make a round longer.
func pairs(b *testing.B, rdb *redis.Client, sends []string, pair func()) {
	b.Helper()
	const round = 100
	pair() // the server learns the scripts
	least := math.Inf(1)
	for b.Loop() {
		before := serverMicros(b, rdb, sends)
		for range round {
			pair()
		}
		least = min(least, (serverMicros(b, rdb, sends)-before)/round)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*round), "ns/pair")
	b.ReportMetric(least, "server-us/pair")
}

// serverMicros is the time that the server has spent in some commands.
func serverMicros(b *testing.B, rdb *redis.Client, commands []string) (sum float64) {
	b.Helper()
	info, err := rdb.InfoMap(b.Context(), "commandstats").Result()
	require.NoError(b, err)
	for _, c := range commands {
		var calls int
		var usec float64
		stat := info["Commandstats"]["cmdstat_"+c]
		if _, err := fmt.Sscanf(stat, "calls=%d,usec=%f", &calls, &usec); err != nil {
			require.Empty(b, strings.TrimSpace(stat))
		}
		sum += usec
	}
	return sum
}
