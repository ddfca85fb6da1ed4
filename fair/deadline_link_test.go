package fair_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// With ContextTimeoutEnabled, go-redis closes a connection whose answer comes after the attempt,
// and the client learns nothing about the link. A new connection costs four round trips before the
// command. The link is as slow as guarantees.md allows, and its connections break again and again.
func TestALinkMayBeThatSlowIfGoRedisObeysDeadlines(t *testing.T) {
	t.Parallel()
	for kind, by := range map[string]locker{"mutex": byMutex, "fair mutex": byFairMutex, "semaphore": bySemaphore} {
		for _, lease := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("%s, lease %s", kind, lease), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const slowest = 400 * time.Millisecond
					roundTrip := min(lease/15, slowest) - time.Millisecond
					link := redistest.Bubble(t)
					locks := stage.LocksOn(t, link.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }),
						redlatch.WithLease(lease), redlatch.WithHeartbeat(15*slowest))
					link.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.DelayReply(roundTrip)})
					ctx, cancel := context.WithTimeout(t.Context(), 10*roundTrip)
					defer cancel()
					h, err := by(ctx, locks, "door")
					require.NoError(t, err)
					for i := range 20 {
						time.Sleep(lease/2 + time.Duration(i)*lease/20)
						link.KillAll()
						require.True(t, h.Trusted())
					}
					h.release(t)
				})
			})
		}
	}
}
