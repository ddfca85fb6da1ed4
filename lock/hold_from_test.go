package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A context has the holds that it re-enters, however it was made of the contexts of holds: HoldFrom
// finds exactly the locks that TryLock re-enters. PermitFrom finds the permits of all those
// contexts.
func TestHoldFromFindsWhatTheContextReenters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			v := redistest.Bubble(t)
			locks, err := redlatch.New(v.Client(), redlatch.WithoutRenewal())
			require.NoError(t, err)
			defer func() { require.NoError(t, locks.Close(context.Background())) }()
			type known struct {
				context.Context
				permits map[string]bool
			}
			all := []known{{Context: context.Background()}}
			some := rapid.Custom(func(t *rapid.T) known { return rapid.SampledFrom(all).Draw(t, "context") })
			joined := func(a, b known, also string) map[string]bool {
				permits := map[string]bool{also: true}
				for _, from := range []known{a, b} {
					for name := range from.permits {
						permits[name] = true
					}
				}
				return permits
			}
			const most = 6
			for i := range rapid.IntRange(2, most).Draw(t, "holds") {
				under, beside := some.Draw(t, "under"), some.Draw(t, "beside")
				bound := rapid.Bool().Draw(t, "bound")
				name := fmt.Sprintf("lock %d", i)
				if rapid.Bool().Draw(t, "permit") {
					p, err := locks.Semaphore(name, 1).Acquire(under, 1)
					require.NoError(t, err)
					next := known{p.Context(), joined(under, under, name)}
					if bound {
						ctx, cancel := p.Bind(beside)
						defer cancel()
						next = known{ctx, joined(under, beside, name)}
					}
					all = append(all, next)
					continue
				}
				h, err := locks.Mutex(name).Lock(under)
				require.NoError(t, err)
				next := known{h.Context(), joined(under, under, "")}
				if bound {
					ctx, cancel := h.Bind(beside)
					defer cancel()
					next = known{ctx, joined(under, beside, "")}
				}
				all = append(all, next)
			}
			for c, ctx := range all {
				for i := range most {
					name := fmt.Sprintf("lock %d", i)
					info, err := locks.Mutex(name).Inspect(t.Context())
					require.NoError(t, err)
					if info.Held() {
						again, err := locks.Mutex(name).TryLock(ctx)
						h, found := locks.Mutex(name).HoldFrom(ctx)
						require.Equal(t, err == nil, found, "context %d, %s", c, name)
						if found {
							require.Equal(t, again.ID(), h.ID())
							require.NoError(t, again.Unlock(ctx))
						}
					}
					_, found := locks.Semaphore(name, 1).PermitFrom(ctx)
					require.Equal(t, ctx.permits[name], found, "context %d, permit %s", c, name)
				}
			}
			synctest.Wait()
		})
	})
}
