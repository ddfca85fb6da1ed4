package redlatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// No clock is set: that of the server runs faster than that of the holder, by nearly a
// thousandth, as when each is slewed by 500 millionths. The lease of a holder that is
// cut off ends early then, and trust has to end before it.
func TestTrustEndsBeforeTheLeaseOfAFasterClock(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Second, time.Hour, 24 * time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				other := v.Another()
				a := locksOn(t, v.Client(), redlatch.WithLease(lease), redlatch.WithoutRenewal())
				b := locksOn(t, other.Client())
				hold := mustLock(t, t.Context(), a.Mutex("door"))
				v.BlackHole(redistest.AllTraffic)
				step := lease / 1000
				for range 995 {
					time.Sleep(step)
					v.Server.FastForward(step * 9 / 10_000)
				}
				for {
					next, err := b.Mutex("door").TryLock(t.Context())
					if err == nil {
						require.False(t, hold.Trusted(), "trusted for %v more", time.Until(hold.TrustedUntil()))
						require.NoError(t, next.Unlock(t.Context()))
						break
					}
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					time.Sleep(lease / 100_000)
				}
				v.Heal()
				require.ErrorIs(t, hold.Unlock(t.Context()), redlatch.ErrLost)
				require.NoError(t, a.Close(t.Context()))
				require.NoError(t, b.Close(t.Context()))
				time.Sleep(15 * time.Second)
			})
		})
	}
}
