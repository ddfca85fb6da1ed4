package lock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// This is TestNoRenewalOutlivesUnlock on a real server with the real clock. Goroutines lock and
// unlock up to 100,000 locks while renewals run every 5 to 10 ms. After an Unlock, a renewal on the
// wire or a key could remain.
func TestNoRenewalOutlivesUnlockOnARealServer(t *testing.T) {
	t.Parallel()
	const atOnce = 16
	cycles := redistest.Rounds(10_000, 100_000)
	server := redistest.Start(t)
	rdb := server.Client(t)
	wire := &renewals{over: make(map[string]bool, cycles)}
	rdb.AddHook(wire)
	// The lease is long, because a busy machine must not end holds here. The test is about the
	// interval.
	locks := stage.LocksOn(t, rdb, redlatch.WithLease(time.Minute), redlatch.WithRenewInterval(10*time.Millisecond))

	var g sync.WaitGroup
	for n := range atOnce {
		g.Go(func() {
			m := locks.Mutex("cycle " + strconv.Itoa(n))
			for i := range cycles / atOnce {
				h, err := m.Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				if i%16 == 0 {
					time.Sleep(rand.N(12 * time.Millisecond)) // held for a renewal or two
				}
				if !assert.NoError(t, h.Unlock(context.Background())) {
					return
				}
				wire.unlocked(h.ID())
			}
		})
	}
	g.Wait()
	require.Greater(t, wire.sent, cycles/100, "hardly any renewal to meet")

	// A lock that is held is renewed ten more times. By then, the others would be renewed too.
	witness := stage.MustLock(t, t.Context(), locks.Mutex("witness"))
	for range 10 {
		stage.AwaitRenewal(t, witness)
	}
	require.NoError(t, witness.Unlock(t.Context()))
	require.Empty(t, wire.late, "renewed after Unlock")
	keys, err := server.Control().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, atOnce+1)
	for _, key := range keys {
		require.Contains(t, key, "redisson_lock_token:")
	}
}
