package acquisition_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

func TestUnlockNeedsAContext(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		var missing context.Context
		require.ErrorIs(t, h.Unlock(missing), lockerr.ErrConfig)
		require.True(t, h.A.IsLive())
		require.Empty(t, b.commands)
	})
}

// The background finishes an Unlock that gave up behind another command, once.
func TestAnUnlockThatGaveUpIsFinishedInTheBackground(t *testing.T) {
	t.Run("Unlock is called once", func(t *testing.T) { unlockGivesUp(t, 1) })
	t.Run("Unlock is called twice", func(t *testing.T) { unlockGivesUp(t, 2) })
}

func unlockGivesUp(t *testing.T, times int) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(attempt)
			}
			return nil
		}
		again := begin(func() *acquisition.Hold { return s.reenter(h.A) })
		require.True(t, h.Trusted())
		for range times {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			err := h.Unlock(ctx)
			require.ErrorIs(t, err, lockerr.ErrIndeterminate)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, h.Trusted())
			require.True(t, h.TrustedUntil().IsZero())
		}
		h.HandleCollected() // the handle is not needed any more
		s.log.are(t)
		inner := <-again
		b.sent("reenter 2 3s", "holds 1")
		require.True(t, inner.Trusted())
		s.unlock(h)
		require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrNotHeld)
		b.sent("reenter 2 3s", "holds 1")
		s.unlock(inner)
		b.sent("reenter 2 3s", "holds 1", "release")
		b.notified(0, 1)
	})
}

// The loss tells more than that the command in flight has no end.
func TestAnUnlockThatGivesUpAfterTheLossSaysTheLoss(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.renewal = gone
		h, b := s.start()
		b.answer = after(lease, errAnswer)
		again := begin(func() error { return reenterOnce(h, nil) })
		ctx, cancel := context.WithTimeout(context.Background(), 2*attempt)
		defer cancel()
		require.ErrorIs(t, h.Unlock(ctx), lockerr.ErrLost)
		require.ErrorIs(t, <-again, lockerr.ErrLost)
	})
}

func TestClosingEndsAnUnlockInTheBackground(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		answered := make(chan struct{})
		b.answer = func(context.Context, int) error { <-answered; return nil }
		again := begin(func() error { return reenterOnce(h, nil) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, h.Unlock(ctx), lockerr.ErrIndeterminate)
		s.session.BeginClose()
		ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, h.A.Close(ctx), context.DeadlineExceeded)
		require.Error(t, s.session.FinishClose(ctx))
		b.sent("reenter 2 3s")
		close(answered)
		require.ErrorIs(t, <-again, acquisition.ErrAlreadyReleased)
		require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrClosed, "nobody has released the lock")
		b.sent("reenter 2 3s")
	})
}

// A release is retried until trust ends. It has the time of one attempt in any case.
func TestAReleaseHasItsTime(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		before time.Duration
		gets   time.Duration
	}{
		"until trust ends":             {context.Background(), 0, trusted},
		"one attempt":                  {context.Background(), trusted - attempt/2, attempt},
		"with a context that ended":    {cancelled, 0, attempt},
		"with one that ended, at last": {cancelled, trusted - attempt/2, attempt},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				s.settings.Renew = false
				s.renewal = func(context.Context) (watchdog.Result, error) { return watchdog.Held, nil }
				h, b := s.start()
				time.Sleep(c.before)
				b.answer = func(ctx context.Context, _ int) error {
					require.NoError(t, ctx.Err())
					end, ok := ctx.Deadline()
					require.True(t, ok)
					require.WithinDuration(t, time.Now().Add(c.gets), end, time.Millisecond)
					return nil
				}
				require.NoError(t, h.Unlock(c.ctx))
				b.sent("release")
			})
		})
	}
}

func TestAReleaseDoesNotWaitLongForARenewal(t *testing.T) {
	inBubble(t, func(s *scene) {
		answered := make(chan struct{})
		defer close(answered)
		s.renewal = func(context.Context) (watchdog.Result, error) { <-answered; return watchdog.Renewed, nil }
		h, b := s.start()
		time.Sleep(attempt + attempt/10)
		begun := time.Now()
		b.answer = func(context.Context, int) error {
			require.Positive(t, time.Since(begun))
			require.Less(t, time.Since(begun), attempt)
			return nil
		}
		s.unlock(h)
		b.sent("release")
	})
}

// An Unlock that failed may be repeated. Redis may have released the lock already.
func TestAReleaseThatFailedMayBeRepeated(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.retries = true
		var answers atomic.Bool
		b.answer = func(context.Context, int) error {
			time.Sleep(lease / 20)
			if answers.Load() {
				return acquisition.ErrGone
			}
			return errAnswer
		}
		for range 2 {
			require.ErrorIs(t, h.Unlock(context.Background()), errAnswer)
			b.notified(0, 1)
		}
		answers.Store(true)
		s.unlock(h)
		require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrNotHeld)
		b.notified(0, 1)
	})
}

func TestAReleaseOfALockThatIsGoneIsALoss(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = after(0, acquisition.ErrGone)
		for range 2 {
			require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrLost)
			b.sent("release")
			b.notified(0, 1)
		}
		require.True(t, isClosed(h.Lost()))
	})
}

// The end of the lease during an Unlock is not its result.
func TestTheAnswerToAReleaseShowsWhetherTheLockIsLost(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = after(2*lease, nil)
		require.NoError(t, h.Unlock(context.Background()))
		b.notified(0, 1)
	})
}

func TestAHoldThatWasUnlockedBeforeTheLossIsNotLost(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.renewal = gone
		h, _ := s.start()
		inner := s.reenter(h.A)
		s.unlock(inner)
		<-h.Lost()
		synctest.Wait()
		require.ErrorIs(t, inner.Unlock(context.Background()), lockerr.ErrNotHeld)
		require.False(t, isClosed(inner.Lost()))
	})
}

const (
	lastDropped  = "its lock is not renewed any more"
	otherDropped = "other holds keep its lock"
)

// Holds whose handles became garbage do not count. The lock is renewed for those that are left.
func TestDroppedHoldsDoNotCount(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		two, three := s.reenter(h.A), s.reenter(h.A)
		s.unlock(three)
		three.HandleCollected()
		s.log.are(t)
		lost := two.Lost()
		collect(two)
		s.log.are(t, otherDropped)
		require.False(t, isClosed(lost))
		s.unlock(s.reenter(h.A))
		b.sent("reenter 2 3s", "reenter 3 3s", "holds 2", "reenter 2 3s", "holds 1")
		time.Sleep(2 * lease)
		require.True(t, h.Trusted())
		s.unlock(h)
		h.HandleCollected()
		b.notified(0, 1)
		s.log.are(t, otherDropped)
		require.True(t, isClosed(lost), "it ends with the lock, without an Unlock of its own")
		require.NoError(t, h.A.Close(context.Background()))
	})
}

func TestALockWhoseHoldsWereDroppedRunsOut(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		two := s.reenter(h.A)
		one := h.Lost()
		two.HandleCollected()
		collect(h)
		s.log.are(t, otherDropped, lastDropped)
		b.notified(0, 0)
		<-one
		b.notified(1, 1)
		require.NoError(t, h.A.Close(context.Background()))
		h.HandleCollected()
		b.notified(1, 1)
		s.log.are(t, otherDropped, lastDropped)
		require.Len(t, b.commands, 1)
	})
}

func TestAReentryResumesTheRenewalOfADroppedLock(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		collect(h)
		again := s.reenter(h.A)
		time.Sleep(3 * lease)
		require.True(t, again.Trusted())
		s.unlock(again)
		b.sent("reenter 2 3s", "release")
		b.notified(0, 1)
	})
}

// The garbage collector may find the handle of a hold after the lock has ended.
func TestAHandleThatIsCollectedAfterTheLossEndsTheLock(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.renewal = gone
		h, b := s.start()
		<-h.Lost()
		b.notified(1, 0)
		h.HandleCollected()
		b.notified(1, 1)
		s.log.are(t)
	})
}

// A Close whose context has ended sends nothing, and its error has a kind.
func TestACloseThatSendsNothingSaysUnavailable(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := h.A.Close(ctx)
		require.ErrorIs(t, err, lockerr.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		b.sent()
	})
}

// The handle may become garbage before the background begins to finish an Unlock whose goroutine a
// hook has ended.
func TestAnUnlockWithoutGoroutineIsFinishedThoughItsHandleIsGarbage(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		begin, err := h.EndGoroutineInUnlock()
		require.NoError(t, err)
		h.HandleCollected()
		b.notified(0, 0)
		begin()
		b.sent("release")
		b.notified(0, 1)
		s.log.are(t)
	})
}

// An Unlock that gave up while another command was in flight is finished in the background. The
// program need not call it again.
func TestAnUnlockInTheBackgroundIsNotNeeded(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, _ := s.start()
		require.True(t, h.A.NeedsUnlock())
		other := s.reenter(h.A)
		begin, err := other.EndGoroutineInUnlock()
		require.NoError(t, err)
		require.True(t, h.A.NeedsUnlock(), "another hold is left")
		begin()
		synctest.Wait()
		begin, err = h.LeaveUnlock()
		require.NoError(t, err)
		require.True(t, h.A.IsLive())
		require.False(t, h.A.NeedsUnlock())
		begin()
		synctest.Wait()
		require.False(t, h.A.IsLive())
	})
}
