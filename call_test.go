package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/reentrant"
)

func TestCallReturnsTheValueOfItsFunction(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		failed := errors.New("half done")
		for _, err := range []error{nil, failed} {
			v, got := redlatch.Call(r.Context(), r.mutex("a"), func(ctx context.Context) (string, error) {
				h, ok := redlatch.HoldFromContext(ctx)
				require.True(r, ok)
				r.refused(r.Context(), "a")
				return h.Name(), err
			})
			require.Equal(r, err, got)
			require.Equal(r, "a", v, "also beside an error")
		}
		h := r.lock(r.Context(), "a")
		ended, cancel := context.WithCancel(r.Context())
		cancel()
		v, err := redlatch.Call(ended, r.mutex("a"), func(context.Context) (int, error) { panic("runs") })
		require.ErrorIs(r, err, context.Canceled)
		require.Zero(r, v)
		r.unlock(h)
	})
}

func TestCallReportsALossBesideTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		v, err := redlatch.Call(t.Context(), s.mu, func(context.Context) (int, error) {
			return 7, s.direct.FlushAll(t.Context()).Err()
		})
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Equal(t, 7, v)
	})
}

func TestCallWithoutALockIsRefused(t *testing.T) {
	for name, l := range map[string]redlatch.Locker{
		"nil": nil, "nil mutex": (*reentrant.Mutex)(nil), "nil fair mutex": (*fair.Mutex)(nil), "zero mutex": new(reentrant.Mutex),
	} {
		_, err := redlatch.Call(t.Context(), l, func(context.Context) (int, error) { panic("runs") })
		requireOnly(t, redlatch.ErrConfig, err, name)
	}
}
