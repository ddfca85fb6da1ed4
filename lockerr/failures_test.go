package lockerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: the errors of calls show the cause of the end of their context. Nobody
// takes this cause for something that happened to the lock of the call.

func TestTheLossOfALockIsNoLossOfAnother(t *testing.T) {
	notLost := func(t *testing.T, ctx context.Context, err error, name string) {
		t.Helper()
		require.ErrorIs(t, err, ctx.Err(), name)
		require.NotErrorIs(t, err, redlatch.ErrLost, name)
		require.False(t, errors.As(err, new(*redlatch.LostError)), name)
		require.ErrorContains(t, err, "lost", "%s: the cause is shown", name)
	}
	t.Run("calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			ended := s.Lose()
			for name, op := range stage.Calls(s.Locks) {
				notLost(t, ended, op(ended), name)
			}
			_, err := s.Mutex.Lock(ended)
			require.ErrorIs(t, err, redlatch.ErrLost, "this very lock")
			require.ErrorIs(t, err, ended.Err())
		})
	})
	for kind := range stage.Kinds {
		t.Run("release, "+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				_, release, err := stage.Kinds[kind].Take(s.Locks, context.Background())
				require.NoError(t, err)
				ended := s.Lose()
				s.Proxy.Down()
				notLost(t, ended, release(ended), kind)
				s.Proxy.Up()
				require.NoError(t, release(context.Background()), "it was never lost")
			})
		})
	}
}

// An errgroup cancels its context with the error of the first goroutine that failed. That may be an
// error of redlatch.
func TestErrorsInsideACauseBelongToAnotherCall(t *testing.T) {
	errs := []error{
		redlatch.ErrRemoved,
		&redlatch.OpError{Kind: redlatch.ErrUnavailable}, &redlatch.NotAcquiredError{}, &redlatch.LostError{},
		&redlatch.ConfigError{}, &redlatch.LimitError{},
	}
	for _, sentinel := range stage.Sentinels {
		errs = append(errs, sentinel)
	}
	mine := errors.New("another part of the job failed")
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		held := s.Lock(context.Background())
		for _, inside := range errs {
			cause := fmt.Errorf("%w: %w", mine, inside)
			var err error
			ended, cancel := context.WithCancelCause(context.Background())
			cancel(cause)
			_, err = s.Locks.Mutex("other").Lock(ended)
			for name, sentinel := range stage.Sentinels {
				require.NotErrorIs(t, err, sentinel, "%s: %v", name, err)
			}
			require.NotErrorIs(t, err, redlatch.ErrRemoved)
			require.ErrorIs(t, err, mine)
			require.ErrorIs(t, err, cause)
			require.ErrorIs(t, err, context.Canceled)

			waiting, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err = s.Mutex.Lock(waiting)
			stage.RequireOnly(t, redlatch.ErrNotAcquired, err)
			require.NotErrorIs(t, err, redlatch.ErrRemoved)
			require.ErrorIs(t, err, mine)
			require.ErrorIs(t, err, context.Canceled)
			for _, typed := range []any{new(*redlatch.LostError), new(*redlatch.OpError), new(*redlatch.ConfigError), new(*redlatch.LimitError)} {
				require.False(t, errors.As(err, typed), "%T in %v", typed, err)
			}
		}
		s.Unlock(held)
	})
}

// A limit of the library ended another call, which ended the context of this one.
func TestALimitInsideACauseIsNotTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Proxy.Down()
		_, gaveUp := s.Mutex.TryLock(context.Background())
		require.ErrorIs(t, gaveUp, redlatch.ErrUnavailable)
		s.Proxy.Up()
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(gaveUp)
		for _, op := range []func(context.Context) (*lock.Hold, error){s.Mutex.Lock, s.Mutex.TryLock} {
			_, err := op(ended)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, gaveUp)
			require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		}
	})
}

// An old refusal is no reason why a later Lock gave up.
func TestAnOldFaultIsNotReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		waits := make(chan error, 1)
		go func() { _, err := s.Mutex.Lock(ctx); waits <- err }()
		s.Settle()
		loading := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Action: redistest.Refuse("LOADING Redis is loading")})
		brief, cancelBrief := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancelBrief()
		_, err := s.Mutex.TryLock(brief)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		loading.Disarm()
		err = <-waits
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		s.Unlock(h)
	})
}

// A re-entry has none of the doubts that a Lock had before its grant.
func TestAReentryInheritsNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(200*time.Millisecond), redlatch.WithRenewInterval(20*time.Millisecond))
		s.Unlock(s.Lock(context.Background()))
		lost := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Action: redistest.Swallow()})
		time.AfterFunc(600*time.Millisecond, lost.Disarm)
		h := s.Lock(context.Background())
		require.NotZero(t, lost.Bites())
		loading := s.Proxy.Inject(redistest.Rule{Match: stage.AReentry, Action: redistest.Refuse("LOADING Redis is loading")})
		ctx, cancel := context.WithTimeout(h.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, redlatch.ErrIndeterminate)
		loading.Disarm()
		s.Unlock(h)
	})
}
