package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

var errBoom = errors.New("boom:\n it broke")

func TestALockWhoseOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		for _, call := range []func(context.Context, *redlatch.Client, ...redlatch.LockOption) (held, error){k.lock, k.try} {
			s.FailNext(redlatchtest.OpLock, errBoom)
			_, err := call(t.Context(), s.Client)
			require.ErrorIs(t, err, errBoom)
			require.ErrorIs(t, err, redlatch.ErrIndeterminate)
			require.NotErrorIs(t, err, redlatch.ErrRefused)
			require.ErrorContains(t, err, "boom: it broke")
			h, err := k.lock(soon(t), s.Client) // after the cleanup
			require.NoError(t, err)
			requireHeld(t, h)
		}
	})
}

func TestALockThatRedisRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		for _, refusal := range []error{redlatch.ErrRefused, errors.New("OOM command not allowed when used memory > 'maxmemory'")} {
			s.FailNext(redlatchtest.OpLock, refusal)
			_, err := k.lock(t.Context(), s.Client)
			require.ErrorIs(t, err, refusal)
			require.ErrorIs(t, err, redlatch.ErrRefused)
			require.NotErrorIs(t, err, redlatch.ErrIndeterminate)
			k.requireFree(t, s.Client)
		}
	})
}

func TestAStateThatPassesIsNotNoticed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		s.FailNext(redlatchtest.OpLock, errors.New("LOADING Redis is loading the dataset in memory"))
		requireHeld(t, k.mustLock(t, s.Client))
	})
}

func TestFailuresOfOneOperationComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		errOther := errors.New("other")
		s.FailNext(redlatchtest.OpLock, errBoom)
		s.FailNext(redlatchtest.OpLock, errOther)
		_, err := k.try(t.Context(), s.Client)
		require.ErrorIs(t, err, errBoom)
		_, err = k.try(t.Context(), s.NewClient())
		require.ErrorIs(t, err, errOther)
	})
}

func TestAnUnlockTriesAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		h := k.mustLock(t, s.Client)
		s.FailNext(redlatchtest.OpUnlock, errBoom)
		s.FailNext(redlatchtest.OpUnlock, redlatch.ErrRefused)
		require.NoError(t, h.release(t.Context()))
		k.requireFree(t, s.NewClient())
	})
}

// A release is tried again, so a test of a release that fails needs an error that lasts. The error
// ends with the test at the latest, and then the release succeeds.
func TestAnErrorThatLastsFailsEachAttempt(t *testing.T) {
	t.Parallel()
	refused := errors.New("NOPERM this user has no permissions")
	for _, k := range kinds {
		do := map[string]func(ctx context.Context, c *redlatch.Client, fn func(context.Context) error) error{
			"mutex": func(ctx context.Context, c *redlatch.Client, fn func(context.Context) error) error {
				return c.Mutex("door").Do(ctx, fn)
			},
			"fair mutex": func(ctx context.Context, c *redlatch.Client, fn func(context.Context) error) error {
				return c.FairMutex("door").Do(ctx, fn)
			},
			"semaphore": func(ctx context.Context, c *redlatch.Client, fn func(context.Context) error) error {
				return c.Semaphore("door", 3).Do(ctx, 2, fn)
			},
		}[k.name]
		for want, err := range map[error]error{redlatch.ErrRefused: refused, nil: errBoom} {
			for _, stops := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := redlatchtest.New(t)
					var stop func()
					got := do(t.Context(), s.Client, func(context.Context) error {
						stop = s.Fail(redlatchtest.OpUnlock, err)
						return nil
					})
					require.ErrorIs(t, got, want)
					_, busy := k.try(t.Context(), s.NewClient())
					require.ErrorIs(t, busy, redlatch.ErrNotAcquired)
					if stops {
						stop()
						stop()
						h := k.mustLock(t, s.NewClient())
						require.NoError(t, h.release(t.Context()))
					}
				})
			}
		}
	}
}

func TestARenewalTriesAgain(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := redlatchtest.New(t)
			h := k.mustLock(t, s.Client)
			s.FailNext(redlatchtest.OpRenew, errBoom)
			time.Sleep(2 * lease)
			requireHeld(t, h)
		})
	}
}

// The holder of HoldElsewhere is another process, and has an own link.
func TestOtherProcessesDoNotFail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		h := k.mustLock(t, s.Client)
		s.FailNext(redlatchtest.OpUnlock, errBoom)
		s.Lose("door")
		k.elsewhere(s)()
		requireLost(t, h) // without a command
		h = k.mustLock(t, s.Client)
		require.NoError(t, h.release(t.Context()))

		s.FailNext(redlatchtest.OpLock, errBoom)
		k.elsewhere(s)()
		_, err := k.try(t.Context(), s.Client)
		require.ErrorIs(t, err, errBoom)
	})
}

// Many calls at once share pipelines. One of them fails, with its own error.
func TestOneOfManyCallsFails(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		for range 10 {
			s.FailNext(redlatchtest.OpLock, errBoom)
			var all sync.WaitGroup
			failed := make(chan error, 100)
			for n := range cap(failed) {
				all.Go(func() {
					h, err := s.Client.Mutex(fmt.Sprintf("door %d", n)).Lock(t.Context())
					if err == nil {
						err = h.Unlock(t.Context())
					}
					if err != nil {
						failed <- err
					}
				})
			}
			all.Wait()
			close(failed)
			require.Len(t, failed, 1)
			require.ErrorIs(t, <-failed, errBoom)
		}
	})
}

// Two errors of one text are one error reply. It matches both.
func TestErrorsOfOneTextMatchBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		first, second := errors.New("boom: it broke"), errors.New("boom: it broke")
		s.FailNext(redlatchtest.OpLock, first)
		s.FailNext(redlatchtest.OpLock, second)
		for range 2 {
			_, err := s.Client.Mutex("door").Lock(t.Context())
			require.ErrorIs(t, err, first)
			require.ErrorIs(t, err, second)
		}
	})
}
