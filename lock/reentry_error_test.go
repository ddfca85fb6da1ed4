package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lockerr"
)

// The error of Do says whether the lock around the work failed, so that the work did not run, or
// the same lock again inside of it.
func TestAFailedReentrySaysThatTheWorkHasBegun(t *testing.T) {
	failures := map[string]func(s *stage.Scene){
		"down":   func(s *stage.Scene) { s.Proxy.Down() },
		"silent": func(s *stage.Scene) { s.Proxy.BlackHole(redistest.CommandTraffic) },
		"refused": func(s *stage.Scene) {
			s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("NOPERM no")})
		},
	}
	for name, fail := range failures {
		for _, kind := range []string{"mutex", "fair"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t, redlatch.WithWaitTimeout(3*time.Second))
					nothing := func(context.Context) error { return nil }
					err := stage.DoCalls[kind](s.Locks, t.Context(), func(ctx context.Context) error {
						fail(s)
						return stage.DoCalls[kind](s.Locks, ctx, nothing)
					})
					var op *lockerr.OpError
					require.ErrorAs(t, err, &op)
					require.True(t, op.Reentry, "%v", err)

					err = stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
					require.ErrorAs(t, err, &op)
					require.False(t, op.Reentry, "%v", err)
					s.Proxy.Up()
					s.Proxy.Heal()
				})
			})
		}
	}
}
