package lua_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// A hash whose fields are not of the form <id>:<n> is somebody else's.
func TestAHashOfOtherNumbersIsNoMutex(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		require.NoError(t, b.rdb.HSet(t.Context(), names.Lock, "visits", 5).Err())
		_, err := lua.ForceRelease(t.Context(), b.rdb, lua.ForceReleaseParams{LockKey: names.Lock, Channel: names.Channel, Expected: "visits"})
		_, code := lua.Classify(err)
		require.Equal(t, "WRONGTYPE", code, "%v", err)
		_, err = lua.Acquire(t.Context(), b.rdb, lua.AcquireParams{
			LockKey: names.Lock, FenceKey: names.Fence, Acquisition: "a:1", Lease: hour, Holds: 1, VoidAfter: never,
		})
		_, code = lua.Classify(err)
		require.Equal(t, "WRONGTYPE", code, "%v", err)
		require.Equal(t, map[string]string{"visits": "5"}, b.rdb.HGetAll(t.Context(), names.Lock).Val())
	})
}

// The names x and {x} count their fences in one key. The fences of each still grow, and
// a command that is sent again gets one that is above all earlier ones of its name.
func TestTwoNamesThatShareAFenceBothSeeItGrow(t *testing.T) {
	each(t, func(t *testing.T, b *backend) {
		plain, braced := key.ForMutex("door"), key.ForMutex("{door}")
		require.Equal(t, plain.Fence, braced.Fence)
		last := map[string]int64{}
		granted := func(fence int64, status lua.Status, k key.Mutex) {
			require.Equal(t, lua.Granted, status)
			require.Greater(t, fence, last[k.Lock])
			last[k.Lock] = fence
		}
		acquire := func(k key.Mutex, id string) int64 {
			r, err := lua.Acquire(t.Context(), b.rdb, lua.AcquireParams{
				LockKey: k.Lock, FenceKey: k.Fence, Acquisition: id, Lease: hour, Holds: 1, VoidAfter: never,
			})
			require.NoError(t, err)
			require.Equal(t, lua.Granted, r.Status)
			return r.Fence
		}
		transfer := func(k key.Mutex, from, to string) (int64, lua.Status) {
			r, err := lua.Transfer(t.Context(), b.rdb, lua.TransferParams{
				LockKey: k.Lock, FenceKey: k.Fence, From: from, To: to, Lease: hour, VoidAfter: never,
			})
			require.NoError(t, err)
			return r.Fence, r.Status
		}
		first := acquire(plain, "a:1")
		granted(acquire(braced, "b:1"), lua.Granted, braced)
		again := acquire(plain, "a:1")
		require.GreaterOrEqual(t, again, first)
		granted(again, lua.Granted, plain)

		fence, status := transfer(plain, "a:1", "a:2")
		granted(fence, status, plain)
		fence, status = transfer(braced, "b:1", "b:2")
		granted(fence, status, braced)
		fence, status = transfer(plain, "a:1", "a:2") // a copy
		require.Equal(t, lua.Granted, status)
		require.GreaterOrEqual(t, fence, last[plain.Lock])
		last[plain.Lock] = fence
		fence, status = transfer(plain, "a:2", "a:3")
		granted(fence, status, plain)
	})
}
