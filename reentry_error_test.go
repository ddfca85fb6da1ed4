package redlatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
)

// The error of Do says whether the lock around the work failed, so that the work did not run, or the same lock
// again inside of it.
func TestAFailedReentrySaysThatTheWorkHasBegun(t *testing.T) {
	failures := map[string]func(s *scene){
		"down":   func(s *scene) { s.proxy.Down() },
		"silent": func(s *scene) { s.proxy.BlackHole(redistest.CommandTraffic) },
		"refused": func(s *scene) {
			s.proxy.Inject(redistest.Rule{Match: anyScript, Action: redistest.Refuse("NOPERM no")})
		},
	}
	for name, fail := range failures {
		for _, kind := range []string{"mutex", "fair"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := inBubble(t, redlatch.WithWaitTimeout(3*time.Second))
					nothing := func(context.Context) error { return nil }
					err := dos[kind](s.locks, t.Context(), func(ctx context.Context) error {
						fail(s)
						return dos[kind](s.locks, ctx, nothing)
					})
					var op *lockerr.OpError
					require.ErrorAs(t, err, &op)
					require.True(t, op.Reentry, "%v", err)

					err = dos[kind](s.locks, t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
					require.ErrorAs(t, err, &op)
					require.False(t, op.Reentry, "%v", err)
					s.proxy.Up()
					s.proxy.Heal()
				})
			})
		}
	}
}
