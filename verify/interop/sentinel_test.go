package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Both sides ask the sentinels for the master. They exclude each other and wake each other up
// there, and also on the new master after a failover that kept the lock.
func TestSentinel(t *testing.T) {
	t.Parallel()
	r := java(t)
	bed := redistest.StartWatched(t)
	master, replica := bed.Master, bed.Replicas[0]
	locks := locksOn(t, bed.Client(t), redlatch.WithLease(never), redlatch.WithPollInterval(never))
	service := r.open(t, bed.Addrs[0], redissonOptions{mode: "sentinel"})
	holder, waiter := service.thread("holds"), service.thread("waits")

	exchange := func(on *redistest.Server) {
		t.Helper()
		m := locks.Mutex(redistest.Name(t))
		listening := func(n int64) func() bool {
			return func() bool { return listeners(t, on.Control(), m.Name()) == n }
		}
		holder.leased(m.Name(), never)
		refused(t, m)
		before := scripts(t, on)
		got := waits(t, m)
		asleep(t, before, listening(1), on)
		holder.unlock(m.Name())
		h := granted(t, got).hold
		before = scripts(t, on)
		answer := waiter.waits(m.Name())
		asleep(t, before, listening(2), on) // Go has waited, and goes on listening while it has the lock
		unlock(t, h)
		require.Empty(t, waiter.await(answer, "is woken").err)
		waiter.unlock(m.Name())
	}
	exchange(master)

	m := locks.Mutex(redistest.Name(t), redlatch.WithRenewInterval(100*time.Millisecond))
	h := mustLock(t, t.Context(), m)
	replicated(t, master)
	failOver(t, bed.Addrs[0], replica)
	// For up to 200 ms, the sentinels name different masters. Redisson believes the sentinel that
	// it asked last, so it can go back to the old master, which takes writes for another ten
	// seconds.
	master.Kill()
	renewed := h.TrustedUntil()
	require.Eventually(t, func() bool { return h.TrustedUntil().After(renewed) }, guard, time.Millisecond, "renewed on the new master")
	require.Eventually(t, func() bool { // Redisson needs a moment to follow
		r := waiter.do("try", "lock", m.Name())
		return r.err == "" && r.value == "false"
	}, guard, 10*time.Millisecond, "Java finds the lock of Go on the new master")
	require.True(t, h.Trusted())
	unlock(t, h)
	exchange(replica)
}

// replicated returns when both replicas have all data of the master. It needs a write, because WAIT
// counts the writes of its own connection.
func replicated(t *testing.T, master *redistest.Server) {
	t.Helper()
	conn := master.Control().Conn()
	defer conn.Close()
	require.Eventually(t, func() bool {
		require.NoError(t, conn.Set(t.Context(), "mark", "x", 0).Err())
		n, err := conn.Wait(t.Context(), 2, 100*time.Millisecond).Result()
		return err == nil && n == 2
	}, guard, time.Millisecond)
}

// failOver makes a sentinel promote the replica, and returns when the replica is the master.
func failOver(t *testing.T, sentinel string, replica *redistest.Server) {
	t.Helper()
	asks := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer asks.Close()
	require.NoError(t, asks.Failover(t.Context(), "primary").Err())
	require.Eventually(t, func() bool {
		role, err := replica.Control().Do(context.Background(), "ROLE").Slice()
		return err == nil && role[0] == "master"
	}, guard, 10*time.Millisecond)
}
