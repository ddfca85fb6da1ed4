package acquisition_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

func TestRedisGetsTheNumberOfHolds(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		two, three := s.reenter(h.A), s.reenter(h.A)
		ctx := two.Derive(context.Background())
		s.unlock(two)
		require.EqualError(t, context.Cause(ctx), "redlatch: released")
		require.ErrorIs(t, two.Unlock(context.Background()), lockerr.ErrNotHeld)
		four := s.reenter(h.A)
		s.unlock(four)
		s.unlock(three)

		ctx = h.Derive(context.Background())
		require.NoError(t, ctx.Err())
		require.True(t, h.Trusted())
		b.answer = func(context.Context, int) error {
			require.Error(t, ctx.Err(), "work ends before Redis is asked")
			require.False(t, h.A.IsLive())
			require.False(t, h.Trusted())
			b.notified(0, 0)
			return nil
		}
		b.notified(0, 0)
		s.unlock(h)
		b.sent("reenter 2 3s", "reenter 3 3s", "holds 2", "reenter 3 3s", "holds 2", "holds 1", "release")
		b.notified(0, 1)
		for _, ctx := range b.contexts {
			require.Error(t, ctx.Err(), "a context ends with its command")
		}
		require.EqualError(t, context.Cause(h.Derive(context.Background())), "redlatch: released")
		require.True(t, h.TrustedUntil().IsZero())
		require.False(t, isClosed(h.Lost()))
		require.Zero(t, s.session.Watchdog.Len())
		require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrNotHeld)
		_, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
		require.ErrorIs(t, err, acquisition.ErrAlreadyReleased)
		require.NoError(t, h.A.Close(context.Background()))
		require.Len(t, b.commands, 7)
		b.notified(0, 1)
	})
}

func TestAReentryProvesTheLease(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		begun := time.Now()
		require.WithinDuration(t, begun.Add(trusted), h.TrustedUntil(), time.Millisecond)
		time.Sleep(attempt / 4)
		b.answer = after(attempt/4, nil)
		s.reenter(h.A)
		require.WithinDuration(t, begun.Add(attempt/4+trusted), h.TrustedUntil(), time.Millisecond)
	})
}

// A re-entry is no way around the maximum hold time, nor around a lease that must not be renewed.
func TestAReentryDoesNotExtendALeaseThatMustEnd(t *testing.T) {
	t.Run("without renewal", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			s.settings.Renew = false
			h, b := s.start()
			until := h.TrustedUntil()
			time.Sleep(time.Millisecond)
			s.reenter(h.A)
			b.sent("reenter 2 0s")
			require.WithinDuration(t, until, h.TrustedUntil(), time.Microsecond)
		})
	})
	t.Run("after the maximum hold time", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			s.settings.MaxHold = attempt / 2
			h, b := s.start()
			time.Sleep(attempt/2 - 1)
			s.reenter(h.A)
			time.Sleep(time.Nanosecond)
			until := h.TrustedUntil()
			s.reenter(h.A)
			b.sent("reenter 2 3s", "reenter 3 0s")
			require.WithinDuration(t, until, h.TrustedUntil(), 0)
		})
	})
}

// unsure makes attempts of which one is never answered. They may set an old number of holds.
func (s *scene) unsure() session.InFlight {
	tries := 0
	answer, err := session.Do(context.Background(), s.session, session.Operation{Op: "lock", Name: "orders", AttemptTimeout: attempt},
		func(context.Context, lua.Redis, lua.Time) (int, error) {
			if tries++; tries == 1 {
				return 0, io.ErrUnexpectedEOF
			}
			return 0, nil
		})
	require.NoError(s.t, err)
	require.True(s.t, answer.InFlight.Any())
	return answer.InFlight
}

// Redis may have another number of holds after a command that failed. The background sends the
// right one until Redis has it.
func TestAFailedCommandCorrectsTheNumberOfHolds(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = func(_ context.Context, n int) error {
			time.Sleep(time.Millisecond)
			if n < 3 {
				return errAnswer
			}
			return nil
		}
		again, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
		require.ErrorIs(t, err, errAnswer)
		require.Nil(t, again)
		time.Sleep(attempt)
		b.sent("reenter 2 3s", "holds 1", "holds 1")
		for _, ctx := range b.contexts {
			require.Error(t, ctx.Err(), "a context ends with its command")
		}
	})
	t.Run("an inner unlock", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			h, b := s.start()
			inner := s.reenter(h.A)
			b.answer = func(_ context.Context, n int) error {
				if n == 2 {
					return errAnswer
				}
				return nil
			}
			require.ErrorIs(t, inner.Unlock(context.Background()), errAnswer)
			b.sent("reenter 2 3s", "holds 1", "holds 1")
			require.ErrorIs(t, inner.Unlock(context.Background()), lockerr.ErrNotHeld)
		})
	})
}

// While the background corrects the number, further failures need no correction of their own. It
// sends the number of its time. When it has succeeded, the next failure begins a new one.
func TestFailedCommandsShareOneCorrection(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		inner := []*acquisition.Hold{s.reenter(h.A), s.reenter(h.A), s.reenter(h.A)}
		var isDown atomic.Bool
		b.answer = func(context.Context, int) error {
			if isDown.Load() {
				return errAnswer
			}
			return nil
		}
		isDown.Store(true)
		commands := []string{"reenter 2 3s", "reenter 3 3s", "reenter 4 3s"}
		sent := func(more ...string) { commands = append(commands, more...); b.sent(commands...) }
		require.NoError(t, inner[0].UnlockBriefly(context.Background()))
		sent("holds 3", "holds 3")
		require.NoError(t, inner[1].UnlockBriefly(context.Background()))
		sent("holds 2") // and no correction of its own
		isDown.Store(false)
		time.Sleep(attempt)
		sent("holds 2")
		isDown.Store(true)
		require.NoError(t, inner[2].UnlockBriefly(context.Background()))
		sent("holds 1", "holds 1")
		isDown.Store(false)
		time.Sleep(attempt)
		sent("holds 1")
	})
}

func TestAnUnansweredAttemptCorrectsTheNumberOfHolds(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.inFlight = s.unsure()
		inner := s.reenter(h.A)
		time.Sleep(lease)
		b.sent("reenter 2 3s", "holds 2", "holds 2")
		b.inFlight = s.unsure()
		s.unlock(inner)
		time.Sleep(lease)
		b.sent("reenter 2 3s", "holds 2", "holds 2", "holds 1", "holds 1", "holds 1")
	})
}

func TestACorrectionWaitsForTheCommandInFlight(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = func(_ context.Context, n int) error {
			switch n {
			case 1:
				time.Sleep(time.Millisecond)
				return errAnswer
			case 2:
				time.Sleep(5 * attempt / 2)
			}
			return nil
		}
		reenter := func() error {
			_, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
			return err
		}
		fails, works := begin(reenter), begin(reenter)
		require.ErrorIs(t, <-fails, errAnswer)
		require.NoError(t, <-works)
		b.sent("reenter 2 3s", "reenter 2 3s", "holds 2")
		time.Sleep(lease)
		require.Len(t, b.commands, 3)
	})
}

// Once the lock is lost or gone, its number of holds does not matter.
func TestACorrectionEndsWithTheLock(t *testing.T) {
	reenter := func(h *acquisition.Hold) func() error {
		return func() error {
			_, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
			return err
		}
	}
	t.Run("in flight", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			s.renewal = gone
			h, b := s.start()
			time.Sleep(attempt / 2)
			b.answer = func(ctx context.Context, n int) error {
				if n == 1 {
					return errAnswer
				}
				return hang(ctx, n)
			}
			require.ErrorIs(t, reenter(h)(), errAnswer)
			<-h.Lost()
			time.Sleep(lease)
			b.sent("reenter 2 3s", "holds 1")
			require.ErrorIs(t, context.Cause(b.contexts[1]), lockerr.ErrLost)
		})
	})
	t.Run("before it is sent", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			s.renewal = gone
			h, b := s.start()
			b.answer = func(ctx context.Context, n int) error {
				if n == 1 {
					time.Sleep(attempt / 2)
					return errAnswer
				}
				return hang(ctx, n)
			}
			fails, hangs := begin(reenter(h)), begin(reenter(h))
			require.ErrorIs(t, <-fails, errAnswer)
			require.ErrorIs(t, <-hangs, lockerr.ErrLost)
			time.Sleep(lease)
			b.sent("reenter 2 3s", "reenter 2 3s")
		})
	})
	t.Run("by its own answer", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			h, b := s.start()
			b.answer = func(_ context.Context, n int) error {
				time.Sleep(time.Millisecond)
				if n == 1 {
					return errAnswer
				}
				return acquisition.ErrGone
			}
			require.ErrorIs(t, reenter(h)(), errAnswer)
			time.Sleep(attempt / 2)
			b.sent("reenter 2 3s", "holds 1")
			b.notified(0, 0)
		})
	})
}

// A call that waits for the command in flight returns when its context ends. A re-entry also
// returns when the client closes.
func TestACommandWaitsForTheOneInFlight(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		inner := s.reenter(h.A)
		answered := make(chan struct{})
		b.answer = func(_ context.Context, n int) error {
			if n == 2 {
				<-answered
			}
			return nil
		}
		reenter := func(ctx context.Context) func() error {
			return func() error {
				_, err := h.A.Reenter(ctx, acquisition.CallSite{})
				return err
			}
		}
		first := begin(reenter(context.Background()))
		brief, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		err := reenter(brief)()
		require.ErrorIs(t, err, lockerr.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		waits := begin(reenter(context.Background()))
		unlocks := begin(func() error { return inner.Unlock(context.Background()) })
		s.session.BeginClose()
		require.ErrorIs(t, <-waits, lockerr.ErrClosed)
		synctest.Wait()
		require.Empty(t, unlocks)
		close(answered)
		require.NoError(t, <-first)
		require.NoError(t, <-unlocks)
		b.sent("reenter 2 3s", "reenter 3 3s", "holds 2")
	})
}

// Closing does not wait for a re-entry or an inner unlock in flight, and releases after them.
func TestACommandThatCloseOvertakesSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		command func(h, inner *acquisition.Hold) error
		answer  error
		kind    error
	}{
		"a re-entry":            {reenterOnce, nil, acquisition.ErrAlreadyReleased},
		"a re-entry, too late":  {reenterOnce, acquisition.ErrGone, acquisition.ErrAlreadyReleased},
		"an unlock, too late":   {unlockInner, acquisition.ErrGone, lockerr.ErrClosed},
		"an unlock, just in it": {unlockInner, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				h, b := s.start()
				inner := s.reenter(h.A)
				b.answer = func(_ context.Context, n int) error {
					time.Sleep(time.Millisecond)
					if n == 2 {
						return c.answer
					}
					return nil
				}
				ended := begin(func() error { return c.command(h, inner) })
				require.NoError(t, h.A.Close(context.Background()))
				err := <-ended
				require.True(t, errors.Is(err, c.kind), err)
				require.NotErrorIs(t, err, lockerr.ErrLost)
				require.Len(t, b.commands, 3)
				require.Equal(t, "release", b.commands[2])
				b.notified(0, 1)
			})
		})
	}
}

func reenterOnce(h, _ *acquisition.Hold) error {
	again, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
	if again != nil {
		return errors.New("a hold of a lock that was released")
	}
	return err
}

func unlockInner(_, inner *acquisition.Hold) error { return inner.Unlock(context.Background()) }
