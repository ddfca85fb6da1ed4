package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/reentrant"
)

func TestCallReturnsTheValueOfItsFunction(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		failed := errors.New("half done")
		for _, err := range []error{nil, failed} {
			v, got := redlatch.Call(r.Context(), r.Mutex("a"), func(ctx context.Context) (string, error) {
				h, ok := redlatch.HoldFromContext(ctx)
				require.True(r, ok)
				r.Refused(r.Context(), "a")
				return h.Name(), err
			})
			require.Equal(r, err, got)
			require.Equal(r, "a", v, "also beside an error")
		}
		h := r.Lock(r.Context(), "a")
		ended, cancel := context.WithCancel(r.Context())
		cancel()
		v, err := redlatch.Call(ended, r.Mutex("a"), func(context.Context) (int, error) { panic("runs") })
		require.ErrorIs(r, err, context.Canceled)
		require.Zero(r, v)
		r.Unlock(h)
	})
}

func TestCallReportsALossBesideTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		v, err := redlatch.Call(t.Context(), s.Mutex, func(context.Context) (int, error) {
			return 7, s.Direct.FlushAll(t.Context()).Err()
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
		stage.RequireOnly(t, redlatch.ErrConfig, err, name)
	}
}
