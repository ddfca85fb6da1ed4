package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

var errBody = errors.New("the body failed")

// inBubble returns a client in virtual time, and its server.
func inBubble(t *testing.T) (*redlatch.Client, *redistest.Virtual) {
	t.Helper()
	v := redistest.Bubble(t)
	locks, err := redlatch.New(v.Client(), redlatch.WithLease(3*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locks.Close(context.Background())) })
	return locks, v
}

func TestDoWithoutTheLockRunsNothing(t *testing.T) {
	refused := func(context.Context) (*lock.Hold, error) { return nil, lockerr.ErrNotAcquired }
	err := lock.Do(t.Context(), refused, func(context.Context) error { panic("runs") })
	require.Equal(t, lockerr.ErrNotAcquired, err)
}

func TestDoRunsTheBodyUnderTheLockAndReturnsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := inBubble(t)
		mu := locks.Mutex("door")
		for _, body := range []error{nil, errBody} {
			err := lock.Do(t.Context(), mu.Lock, func(context.Context) error {
				info, err := mu.Inspect(t.Context())
				require.NoError(t, err)
				require.True(t, info.Held())
				return body
			})
			require.Equal(t, body, err)
			info, err := mu.Inspect(t.Context())
			require.NoError(t, err)
			require.False(t, info.Held(), "unlocked")
		}
	})
}

// The context of the outer lock ends because that lock is lost, and so the wait for another lock
// ends. The error of that wait contains the loss, but it does not match it, because it is about the
// other lock.
func TestDoReportsALossThatEndedTheWaitForAnotherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, v := inBubble(t)
		busy, err := locks.Mutex("inner").Lock(t.Context())
		require.NoError(t, err)
		err = locks.Mutex("outer").Do(t.Context(), func(ctx context.Context) error {
			v.Server.Del("outer")
			_, err := locks.Mutex("inner").Lock(ctx)
			require.NotErrorIs(t, err, lockerr.ErrLost, "the inner lock was not lost")
			require.ErrorContains(t, err, "lost")
			return err
		})
		require.ErrorIs(t, err, lockerr.ErrLost)
		var lost *lockerr.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, "outer", lost.Name)
		require.ErrorIs(t, err, lockerr.ErrNotAcquired, "of the inner lock")
		require.NoError(t, busy.Unlock(t.Context()))
	})
}

// The loss is one fact, whoever tells it. The error of the body is another.
func TestDoReportsALossOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, v := inBubble(t)
		mu := locks.Mutex("door")
		for name, body := range map[string]func(context.Context) error{
			"a body that noticed nothing": func(context.Context) error { return nil },
			"a body that says it too":     context.Cause,
			"a body that failed":          func(context.Context) error { return errBody },
		} {
			var loss error
			err := lock.Do(t.Context(), mu.Lock, func(ctx context.Context) error {
				v.Server.FlushAll()
				<-ctx.Done()
				loss = context.Cause(ctx)
				return body(ctx)
			})
			require.ErrorIs(t, err, lockerr.ErrLost, name)
			if errors.Is(err, errBody) {
				require.EqualError(t, err, errBody.Error()+"; "+loss.Error(), name)
			} else {
				require.Equal(t, loss, err, name)
			}
		}
	})
}
