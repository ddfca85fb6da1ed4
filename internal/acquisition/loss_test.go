package acquisition_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/watchdog"
)

// Every hold of a lost lock is notified, and its Unlock says the loss, whenever it comes.
func TestALossSaysWhatEndedTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		begin  func(s *scene)
		reason lockerr.LossReason
	}{
		"Redis no longer has it": {
			func(s *scene) { s.renewal = gone }, "redis no longer has it: it expired, was removed or was taken over",
		},
		"a maximum hold time": {
			func(s *scene) { s.settings.MaxHold = time.Second }, "its maximum hold time is over",
		},
		"no renewal": {
			func(s *scene) {
				s.settings.Renew = false
				s.renewal = func(context.Context) (watchdog.Result, error) { return watchdog.Held, nil }
			}, "its lease is over, and was not to be renewed",
		},
		"no answers": {
			func(s *scene) {
				s.renewal = func(context.Context) (watchdog.Result, error) { return watchdog.Unknown, errAnswer }
			}, "its lease could not be confirmed in time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				c.begin(s)
				requireLoss(s, c.reason)
			})
		})
	}
}

// The same loss, before any renewal.
func TestALossNowIsTheLossOfTheNextRenewal(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.settings.RenewInterval = time.Hour
		before := time.Now()
		requireLossBy(s, "redis no longer has it: it expired, was removed or was taken over", func(a *acquisition.Acquisition) {
			a.LoseNow()
			require.False(t, a.IsLive(), "already")
			a.LoseNow()
		})
		require.True(t, time.Now().Equal(before))
	})
}

func TestALossNowLeavesAReleaseAlone(t *testing.T) {
	inBubble(t, func(s *scene) {
		h, b := s.start()
		b.answer = after(time.Second, nil)
		released := begin(func() error { return h.Unlock(context.Background()) })
		until := h.A.TrustedUntil()
		h.A.LoseNow()
		require.True(t, h.A.TrustedUntil().Equal(until), "for which the release tries again")
		require.NoError(t, <-released)
		h.A.LoseNow()
		require.False(t, isClosed(h.Lost()))
		b.notified(0, 1)
	})
}

func requireLoss(s *scene, reason lockerr.LossReason) {
	s.t.Helper()
	requireLossBy(s, reason, func(*acquisition.Acquisition) {})
}

func requireLossBy(s *scene, reason lockerr.LossReason, lose func(*acquisition.Acquisition)) {
	one, b := s.start()
	two, three := s.reenter(one.A), s.reenter(one.A)
	s.unlock(three)
	before := len(b.commands)
	ctx := one.Derive(context.Background())
	lose(one.A)
	<-one.Lost()
	synctest.Wait()
	require.True(s.t, isClosed(two.Lost()), "asked for after the loss")
	require.False(s.t, isClosed(three.Lost()), "it was unlocked before")
	var lost *lockerr.LostError
	require.ErrorAs(s.t, context.Cause(ctx), &lost)
	require.Equal(s.t, reason, lost.Reason)
	require.Equal(s.t, error(lost), context.Cause(two.Derive(context.Background())))
	require.False(s.t, one.Trusted())
	require.False(s.t, one.TrustedUntil().IsZero(), "nobody unlocked it")
	require.False(s.t, one.A.IsLive())
	_, err := one.A.Reenter(context.Background(), acquisition.CallSite{})
	require.Equal(s.t, error(lost), err)
	b.notified(1, 0)
	require.ErrorIs(s.t, three.Unlock(context.Background()), lockerr.ErrNotHeld)
	for range 2 {
		require.Equal(s.t, error(lost), one.Unlock(context.Background()))
		b.notified(1, 0)
	}
	require.Equal(s.t, error(lost), two.Unlock(context.Background()))
	b.notified(1, 1)
	require.NoError(s.t, acquisition.CloseAll(context.Background(), []*acquisition.Acquisition{one.A}))
	b.notified(1, 1)
	require.Len(s.t, b.commands, before, "nothing is sent for a lost lock")
	require.Zero(s.t, s.session.Watchdog.Len())
}

// A command that says that Redis has the lock no more ends the trust at once. It tells the backend.
func TestAServerThatDeniesTheLockEndsTheTrust(t *testing.T) {
	for name, command := range map[string]func(h, inner *acquisition.Hold) error{
		"a re-entry": func(h, _ *acquisition.Hold) error {
			again, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
			if again != nil {
				return nil
			}
			return err
		},
		"an inner unlock": func(_, inner *acquisition.Hold) error { return inner.Unlock(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				h, b := s.start()
				inner := s.reenter(h.A)
				b.answer = after(time.Millisecond, acquisition.ErrGone)
				require.ErrorIs(t, command(h, inner), lockerr.ErrLost)
				require.False(t, h.Trusted())
				require.False(t, h.A.TrustedUntil().After(time.Now()))
				require.True(t, isClosed(h.Lost()))
				b.notified(1, 0)
				require.ErrorIs(t, h.Unlock(context.Background()), lockerr.ErrLost)
				_ = inner.Unlock(context.Background())
				b.notified(1, 1)
			})
		})
	}
}

// Nobody can unlock a lock whose handles are garbage. So its loss ends it.
func TestTheLossOfADroppedLockEndsIt(t *testing.T) {
	t.Run("by a re-entry", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			h, b := s.start()
			collect(h)
			b.notified(0, 0)
			b.answer = after(0, acquisition.ErrGone)
			_, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
			require.ErrorIs(t, err, lockerr.ErrLost)
			b.notified(1, 1)
		})
	})
	t.Run("by time", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			h, b := s.start()
			h.HandleCollected()
			time.Sleep(2 * lease)
			b.notified(1, 1)
		})
	})
}

// A command that hangs must not hide the loss.
func TestALossEndsTheCommandInFlight(t *testing.T) {
	refused := &lockerr.OpError{Kind: lockerr.ErrRefused, Op: "lock", Name: "orders"}
	for name, c := range map[string]struct {
		answer error // instead of the loss
		kind   error
	}{
		"the loss":                {nil, lockerr.ErrLost},
		"a refusal tells more":    {refused, lockerr.ErrRefused},
		"the server also says so": {acquisition.ErrGone, lockerr.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				s.renewal = gone
				h, b := s.start()
				inner := s.reenter(h.A)
				b.answer = func(ctx context.Context, n int) error {
					if err := hang(ctx, n); c.answer == nil {
						return err
					}
					return c.answer
				}
				again, err := h.A.Reenter(context.Background(), acquisition.CallSite{})
				require.Nil(t, again)
				require.ErrorIs(t, err, c.kind)
				require.ErrorIs(t, context.Cause(b.contexts[1]), lockerr.ErrLost)
				b.notified(1, 0)
				b.sent("reenter 2 3s", "reenter 3 3s")
				_, _ = h.Unlock(context.Background()), inner.Unlock(context.Background())
				b.notified(1, 1)
			})
		})
	}
	t.Run("of an inner unlock", func(t *testing.T) {
		inBubble(t, func(s *scene) {
			s.renewal = gone
			h, b := s.start()
			inner := s.reenter(h.A)
			b.answer = func(ctx context.Context, n int) error { _ = hang(ctx, n); return errAnswer }
			require.ErrorIs(t, inner.Unlock(context.Background()), lockerr.ErrLost)
			b.sent("reenter 2 3s", "holds 1")
		})
	})
}
