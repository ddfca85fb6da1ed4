package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// Nobody sets a clock. The server's clock runs faster than the holder's by nearly a thousandth, as
// if each were slewed by 500 millionths. If a holder is cut off, its lease ends early, and trust
// has to end before that.
func TestTrustEndsBeforeTheLeaseOfAFasterClock(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Second, time.Hour, 24 * time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				other := v.Another()
				a := stage.LocksOn(t, v.Client(), redlatch.WithLease(lease), redlatch.WithoutRenewal())
				b := stage.LocksOn(t, other.Client())
				hold := stage.MustLock(t, t.Context(), a.Mutex("door"))
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
