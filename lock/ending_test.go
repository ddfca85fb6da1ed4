package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: an acquisition ends once, whatever fails and whoever else ends it: an
// inner hold, the background, or Close.

// isKeep matches the commands that keep a lock.
var isKeep = func(cmd []string) bool {
	return stage.Runs("mutex/keep")(cmd) || stage.Runs("semaphore/keep")(cmd)
}

// once does something with the next command of a kind.
func once(kind func(cmd []string) bool, action redistest.Action) redistest.Rule {
	return redistest.Rule{Match: kind, Times: 1, Action: action}
}

// unclearWithin asserts that a call fails within d, and cannot say whether Redis did it.
func unclearWithin(t *testing.T, d time.Duration, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.ErrorIs(t, call(ctx), redlatch.ErrIndeterminate)
}

// closeIn closes the client of a scene after d. The channel gets the result.
func closeIn(s *stage.Scene, d time.Duration) <-chan error {
	closed := make(chan error, 1)
	time.AfterFunc(d, func() { closed <- s.Locks.Close(context.Background()) })
	return closed
}

// exports returns a call of Export, for tests that need only its error.
func exports(h *lock.Hold, d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := h.Export(ctx, d)
		return err
	}
}

// An attempt of the acquire has no answer, and an inner hold wants a pause. Close waits for a
// renewal in flight, while the holder that it notified calls Unlock. Close then keeps the lock, and
// does not release what that attempt may have got.
func TestCloseKeepsWhatAnInnerUnlockAfterWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		lost := s.Proxy.Inject(once(isTake, redistest.LoseReply()))
		outer := s.Lock(t.Context())
		require.Equal(t, 1, lost.Bites())
		require.NoError(t, s.Lock(outer.Context()).UnlockAfter(t.Context(), cooldown))
		slow := s.Proxy.Inject(once(stage.ARenewal, redistest.DelayReply(400*time.Millisecond)))
		slow.Await(1)
		ctx := outer.Context()
		unlocked := make(chan error)
		go func() {
			<-ctx.Done()
			unlocked <- outer.Unlock(context.Background())
		}()
		closed := closeIn(s, 0)
		require.ErrorIs(t, <-unlocked, redlatch.ErrClosed)
		require.NoError(t, <-closed)
		require.Equal(t, cooldown, s.TTL().Round(time.Second))
	})
}

// An attempt of the acquire has no answer, and an UnlockAfter fails while Close begins. Close keeps
// the lock, and does not release what that attempt may have got.
func TestCloseKeepsWhatAFailingUnlockAfterWanted(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				lost := s.Proxy.Inject(once(isTake, redistest.LoseReply()))
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				hang := s.Proxy.Inject(redistest.Rule{
					Match: isKeep, Times: 2, Action: redistest.Swallow(),
				})
				closed := closeIn(s.Scene, 50*time.Millisecond)
				unclearWithin(t, 100*time.Millisecond, func(ctx context.Context) error {
					return keep(h, ctx, cooldown)
				})
				require.NoError(t, <-closed)
				require.Equal(t, []int{1, 2}, []int{lost.Bites(), hang.Bites()})
				s.RefusedFor(kind, cooldown-5*time.Second) // Close took some of it
			})
		})
	}
}

// An inner hold wants a pause, and the last Unlock fails. The background has Redis keep the lock.
func TestTheBackgroundKeepsWhatAnInnerUnlockAfterWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(t.Context())
		require.NoError(t, s.Lock(outer.Context()).UnlockAfter(t.Context(), cooldown))
		loading := s.Proxy.Inject(whileLoading)
		failWithin(t, 100*time.Millisecond, outer.Unlock)
		loading.Disarm()
		time.Sleep(5 * time.Second)
		require.Greater(t, s.TTL(), stage.LeaseByDefault)
	})
}

// As above, but the server is still loading when the client closes. Close says that it could not
// have Redis keep the lock.
func TestCloseReportsALockThatItCouldNotKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(t.Context())
		require.NoError(t, s.Lock(outer.Context()).UnlockAfter(t.Context(), cooldown))
		s.Proxy.Inject(whileLoading)
		failWithin(t, 100*time.Millisecond, outer.Unlock)
		failWithin(t, 3*time.Second, s.Locks.Close)
	})
}

// Close begins while an UnlockAfter of an inner hold is in flight, and keeps the lock. So the
// UnlockAfter succeeds.
func TestAnInnerUnlockAfterSucceedsDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(t.Context())
		inner := s.Lock(outer.Context())
		slow := s.Proxy.Inject(once(stage.AnInnerOne, redistest.DelayReply(300*time.Millisecond)))
		closed := closeIn(s, 100*time.Millisecond)
		require.NoError(t, inner.UnlockAfter(t.Context(), cooldown))
		require.NoError(t, <-closed)
		require.Equal(t, 1, slow.Bites())
		require.Equal(t, cooldown, s.TTL().Round(time.Second))
	})
}

// An Export has failed, so an Unlock keeps the lock under the next id, and then frees it. The reply
// to the first of these commands is lost, and the background frees the lock. An UnlockAfter does
// not take that command for one that kept the lock.
func TestAnUnlockAfterAFailedExportKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		loading := s.Proxy.Inject(whileLoading)
		failWithin(t, 100*time.Millisecond, exports(h, time.Minute))
		loading.Disarm()
		lost := s.Proxy.Inject(once(isKeep, redistest.LoseReply()))
		unclearWithin(t, 50*time.Millisecond, h.Unlock)
		require.Equal(t, 1, lost.Bites())
		time.Sleep(5 * time.Second)
		s.Free()
		time.Sleep(2 * stage.LeaseByDefault)
		require.ErrorIs(t, h.UnlockAfter(t.Context(), time.Second), redlatch.ErrNotHeld)
	})
}

// The background has freed the lock after a failed Unlock. Then the reply to an UnlockAfter is
// lost. The next one does not claim that Redis kept the lock for the first.
func TestALostReplyDoesNotKeepALockThatWasFreed(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				loading := s.Proxy.Inject(whileLoading)
				failWithin(t, 100*time.Millisecond, release)
				loading.Disarm()
				time.Sleep(5 * time.Second)
				lost := s.Proxy.Inject(once(isKeep, redistest.LoseReply()))
				unclearWithin(t, 50*time.Millisecond, func(ctx context.Context) error {
					return keep(h, ctx, time.Second)
				})
				require.Equal(t, 1, lost.Bites())
				time.Sleep(2 * time.Second)
				require.ErrorIs(t, keep(h, t.Context(), time.Second), redlatch.ErrNotHeld)
			})
		})
	}
}

// The reply to an Export for an hour is lost. Then Redis keeps the lock for a second, for an
// UnlockAfter whose reply is lost too, or that the background finishes. When that second is over,
// another UnlockAfter is no loss.
func TestAFailedExportForLongerMakesNoLoss(t *testing.T) {
	for name, unlockAfter := range map[string]func(t *testing.T, s *stage.Observed, h *lock.Hold){
		"lost reply": func(t *testing.T, s *stage.Observed, h *lock.Hold) {
			lost := s.Proxy.Inject(once(isKeep, redistest.LoseReply()))
			unclearWithin(t, 50*time.Millisecond, func(ctx context.Context) error {
				return h.UnlockAfter(ctx, time.Second)
			})
			require.Equal(t, 1, lost.Bites())
		},
		"background": func(t *testing.T, s *stage.Observed, h *lock.Hold) {
			loading := s.Proxy.Inject(whileLoading)
			failWithin(t, 100*time.Millisecond, h.Unlock)
			failWithin(t, 5*time.Second, func(ctx context.Context) error {
				return h.UnlockAfter(ctx, time.Second)
			})
			loading.Disarm()
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h := s.Lock(t.Context())
				lost := s.Proxy.Inject(once(isKeep, redistest.LoseReply()))
				unclearWithin(t, 50*time.Millisecond, exports(h, time.Hour))
				require.Equal(t, 1, lost.Bites())
				unlockAfter(t, s, h)
				time.Sleep(10 * time.Second)
				require.NoError(t, h.UnlockAfter(t.Context(), time.Second))
				require.Empty(t, s.Of(event.Lost))
			})
		})
	}
}

// Redis refuses an UnlockAfter for ten seconds, then runs it, and the reply is lost. The five
// seconds count from there, so a lock that Redis no longer has soon after that was lost.
func TestATimeCountsFromTheAttemptThatRedisMayHaveRun(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				loading := s.Proxy.Inject(whileLoading)
				time.AfterFunc(10*time.Second, loading.Disarm)
				lost := s.Proxy.Inject(once(isKeep, redistest.LoseReply()))
				unclearWithin(t, 11*time.Second, func(ctx context.Context) error {
					return keep(h, ctx, 5*time.Second)
				})
				require.Equal(t, 1, lost.Bites())
				require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
				require.ErrorIs(t, keep(h, t.Context(), 5*time.Second), redlatch.ErrLost)
			})
		})
	}
}

// Redis loses the lock while Close waits for an Export in flight. The Export does not return a text
// for a lock that nobody has.
func TestAnExportOfALockThatIsLostDuringCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		slow := s.Proxy.Inject(once(isKeep, redistest.DelayRequest(300*time.Millisecond)))
		closed := closeIn(s, 100*time.Millisecond)
		time.AfterFunc(200*time.Millisecond, func() { s.Direct.FlushAll(t.Context()) })
		require.ErrorIs(t, exports(h, time.Minute)(t.Context()), redlatch.ErrLost)
		require.NoError(t, <-closed)
		require.Equal(t, 1, slow.Bites())
	})
}

// Redis loses the lock while Close waits for an UnlockAfter in flight. The UnlockAfter does not
// claim that Redis keeps it.
func TestAnUnlockAfterOfALockThatIsLostDuringCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		slow := s.Proxy.Inject(once(isKeep, redistest.DelayRequest(300*time.Millisecond)))
		closed := closeIn(s, 100*time.Millisecond)
		time.AfterFunc(200*time.Millisecond, func() { s.Direct.FlushAll(t.Context()) })
		require.ErrorIs(t, h.UnlockAfter(t.Context(), cooldown), redlatch.ErrNotHeld)
		require.NoError(t, <-closed)
		require.Equal(t, 1, slow.Bites())
	})
}
