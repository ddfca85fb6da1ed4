package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: with a progress timeout, a hold stays while its work reports, and is lost
// when it hangs.

const (
	progressLease = 6 * time.Second
	progress      = 20 * time.Second
)

type reporter interface{ ReportProgress() }

func TestAHoldStaysWhileItsWorkReportsProgress(t *testing.T) {
	for kind := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				for range 10 {
					time.Sleep(progress - time.Second)
					require.False(t, stage.IsClosed(h.Lost()))
					h.(reporter).ReportProgress()
				}
				last := time.Now()
				<-h.Lost()
				require.LessOrEqual(t, time.Since(last), progress+progressLease)
				require.Greater(t, time.Since(last), progress)
				require.ErrorContains(t, context.Cause(h.Context()), "no progress")
				synctest.Wait()
				require.Equal(t, event.NoProgress, s.Of(event.Lost)[0].Result)
				h.(reporter).ReportProgress() // too late
				require.ErrorIs(t, release(t.Context()), redlatch.ErrLost)
				_, release, err = stage.Kinds[kind].Take(s.Other, t.Context())
				require.NoError(t, err, "it is free")
				require.NoError(t, release(t.Context()))
			}, redlatch.WithLease(progressLease), redlatch.WithProgressTimeout(progress))
		})
	}
}

// The report comes when the client has stopped renewing, and the lock is not lost yet.
func TestALateReportKeepsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(progressLease), redlatch.WithProgressTimeout(progress))
		h := s.Lock(t.Context())
		for range 3 {
			time.Sleep(progress)
			for time.Until(h.TrustedUntil()) > 100*time.Millisecond {
				time.Sleep(10 * time.Millisecond)
			}
			h.ReportProgress()
			synctest.Wait()
			require.Greater(t, time.Until(h.TrustedUntil()), progressLease-time.Second)
		}
		s.Unlock(h)
	})
}

// A re-entry is no progress, and its hold may report for the lock.
func TestAReentryIsNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(progressLease), redlatch.WithProgressTimeout(progress))
		h := s.Lock(t.Context())
		time.Sleep(progress + time.Second)
		until := h.TrustedUntil() // renewing has stopped
		inner := s.Lock(h.Context())
		require.Equal(t, until, inner.TrustedUntil())
		inner.ReportProgress()
		time.Sleep(progress - time.Second)
		require.True(t, h.Trusted())
		s.Unlock(inner)
		inner.ReportProgress() // it has ended, and says nothing any more
		<-h.Lost()
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	})
}

func TestTheMaximumHoldTimeCountsBesideProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50 * time.Second
		s := stage.InBubble(t, redlatch.WithLease(progressLease), redlatch.WithProgressTimeout(progress), redlatch.WithMaxHold(most))
		began := time.Now()
		h := s.Lock(t.Context())
		for !stage.IsClosed(h.Lost()) {
			h.ReportProgress()
			time.Sleep(time.Second)
			require.LessOrEqual(t, time.Since(began), most+progressLease)
		}
		require.Greater(t, time.Since(began), most)
		require.ErrorContains(t, context.Cause(h.Context()), "maximum hold time")
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)

		h = s.Lock(t.Context()) // and without a report, progress ends it earlier
		<-h.Lost()
		require.ErrorContains(t, context.Cause(h.Context()), "no progress")
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	})
}

// Inside of Do, PermitFrom returns what reports progress.
func TestProgressInsideOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(progressLease), redlatch.WithProgressTimeout(progress))
		pool := s.Locks.Semaphore("pool", 1)
		require.NoError(t, pool.Do(t.Context(), 1, func(ctx context.Context) error {
			for range 100 {
				time.Sleep(progress / 2)
				p, ok := pool.PermitFrom(ctx)
				require.True(t, ok)
				p.ReportProgress()
			}
			return ctx.Err()
		}))
		require.ErrorContains(t, pool.Do(t.Context(), 1, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}), "no progress")
	})
}

func TestWithoutAProgressTimeoutNothingHasToBeReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(progressLease))
		h := s.Lock(t.Context())
		h.ReportProgress()
		time.Sleep(time.Hour)
		require.True(t, h.Trusted())
		s.Unlock(h)
		h.ReportProgress()
		(*lock.Hold)(nil).ReportProgress()
		new(lock.Hold).ReportProgress()
		(*semaphore.Permit)(nil).ReportProgress()
	})
}
