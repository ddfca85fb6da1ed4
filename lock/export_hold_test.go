package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a hold goes on in another process, under a fresh grant. At no time do two
// processes trust it.

// attacher is a mutex of either kind.
type attacher interface {
	redlatch.Locker
	Attach(ctx context.Context, text string) (*lock.Hold, error)
}

var attachers = map[string]func(c *redlatch.Client) attacher{
	"mutex": func(c *redlatch.Client) attacher { return c.Mutex("orders") },
	"fair":  func(c *redlatch.Client) attacher { return c.FairMutex("orders") },
}

// onAttachers runs f with each kind of mutex, for two clients of one server.
func onAttachers(t *testing.T, f func(t *testing.T, s *stage.Observed, mine, theirs attacher)) {
	t.Helper()
	for kind, mutex := range attachers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) { f(t, s, mutex(s.Locks), mutex(s.Other)) })
		})
	}
}

// Handover is how long the holds of Export wait for Attach.

// requireExport asserts that the error says what its caller called.
func requireExport(t *testing.T, err error) {
	t.Helper()
	var op *redlatch.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "export", op.Op)
	require.Equal(t, "orders", op.Name)
	require.NotContains(t, err.Error(), "unlock")
	stage.RequireShowable(t, err)
}

// Export locks a mutex, and exports the hold.

func TestAHoldGoesOnInAnotherProcess(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		old, err := mine.Lock(t.Context())
		require.NoError(t, err)
		ctx := old.Context()
		text, err := old.Export(ctx, stage.Handover)
		require.NoError(t, err, "its own end does not end it")
		require.NotContains(t, text, old.ID(), "it may be seen while the lock is held")
		require.False(t, old.Trusted())
		require.True(t, old.TrustedUntil().IsZero())
		require.ErrorContains(t, context.Cause(ctx), "exported")
		err = old.Unlock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrNotHeld)
		require.ErrorContains(t, err, "exported")
		_, err = old.Export(t.Context(), stage.Handover)
		require.ErrorIs(t, err, redlatch.ErrNotHeld)
		requireExport(t, err)
		require.NoError(t, s.Take(t, event.Released).Err)
		require.NoError(t, s.Locks.Close(t.Context()), "the process ends")

		time.Sleep(stage.Handover - time.Second)
		h, err := theirs.Attach(t.Context(), text)
		require.NoError(t, err)
		require.True(t, h.Trusted())
		require.Greater(t, h.Fence(), old.Fence(), "late writes of the old holder are rejected")
		require.NotEqual(t, old.ID(), h.ID())
		inner, err := theirs.Lock(h.Context())
		require.NoError(t, err)
		require.NoError(t, inner.Unlock(t.Context()))
		time.Sleep(time.Hour)
		require.True(t, h.Trusted(), "it is renewed")
		require.NoError(t, h.Unlock(t.Context()))
		info, err := theirs.Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, info.Held())
	})
}

// Two processes have the text. Redis decides which of them has the lock.
func TestOneOfSeveralAttachesSucceeds(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		_, text := stage.Export(t, theirs)
		s.Forget()
		h, err := mine.Attach(t.Context(), text)
		require.NoError(t, err)
		e := s.Take(t, event.WaitEnded)
		require.Equal(t, event.Attached, e.Source)
		require.Equal(t, h.ID(), e.ID)
		for _, m := range []attacher{mine, theirs} {
			again, err := m.Attach(t.Context(), text)
			require.Nil(t, again)
			stage.RequireOnly(t, redlatch.ErrLost, err)
			require.ErrorContains(t, err, "attached before")
			stage.RequireShowable(t, err)
		}
		require.True(t, h.Trusted())
		require.NoError(t, h.Unlock(t.Context()))
	})
}

func TestAnAttachThatComesTooLateFindsTheLockLost(t *testing.T) {
	onAttachers(t, func(t *testing.T, _ *stage.Observed, mine, theirs attacher) {
		_, text := stage.Export(t, mine)
		next, err := theirs.Lock(t.Context()) // waits until Redis no longer keeps it
		require.NoError(t, err)
		_, err = mine.Attach(t.Context(), text)
		stage.RequireOnly(t, redlatch.ErrLost, err)
		require.True(t, next.Trusted())
		require.NoError(t, next.Unlock(t.Context()))
		_, err = mine.Attach(t.Context(), text)
		stage.RequireOnly(t, redlatch.ErrLost, err)
	})
}

// Waiters of all kinds wait behind an exported lock, and behind the one who attaches it.
func TestWaitersWaitThroughAHandover(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		_, text := stage.Export(t, mine)
		got := make(chan *lock.Hold)
		for _, m := range []redlatch.Locker{s.Locks.Mutex("orders"), s.Locks.FairMutex("orders"), s.Other.Mutex("orders"), s.Other.FairMutex("orders")} {
			go func() {
				h, err := m.Lock(context.Background())
				require.NoError(t, err)
				got <- h
			}()
		}
		time.Sleep(stage.Handover / 2)
		h, err := theirs.Attach(t.Context(), text)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Empty(t, got)
		require.True(t, h.Trusted())
		fence := h.Fence()
		require.NoError(t, h.Unlock(t.Context()))
		for range 4 {
			next := <-got
			require.Greater(t, next.Fence(), fence)
			fence = next.Fence()
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

// The owner has other holds. They must not lose their lock, and one of them may still be at work.
func TestAnExportNeedsTheOnlyHold(t *testing.T) {
	onAttachers(t, func(t *testing.T, _ *stage.Observed, mine, theirs attacher) {
		outer, err := mine.Lock(t.Context())
		require.NoError(t, err)
		inner, err := mine.Lock(outer.Context())
		require.NoError(t, err)
		for _, h := range []*lock.Hold{outer, inner} {
			_, err := h.Export(t.Context(), stage.Handover)
			stage.RequireOnly(t, redlatch.ErrConfig, err)
			require.NoError(t, h.Context().Err(), "it is still held")
			require.True(t, h.Trusted())
		}
		require.NoError(t, inner.Unlock(t.Context()))
		require.NoError(t, outer.Unlock(t.Context()))
		outer, err = theirs.TryLock(t.Context())
		require.NoError(t, err, "no refused export keeps the lock")
		_, err = outer.Export(t.Context(), stage.Handover)
		require.NoError(t, err)
	})
}

func TestTextsThatAreNotOfThisLockAttachNothing(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, _ attacher) {
		h, err := mine.Lock(t.Context())
		require.NoError(t, err)
		_, other := stage.Export(t, s.Locks.Mutex("other"))
		forged := key.Exported{Name: h.Name(), ID: h.ID(), Fence: h.Fence()}.String() // of a lock that somebody holds
		for _, text := range []string{"", "redlatch", forged} {
			_, err := mine.Attach(t.Context(), text)
			stage.RequireBad(t, err, "exported hold", fmt.Sprintf("text of %d bytes", len(text)))
		}
		_, err = mine.Attach(t.Context(), other)
		stage.RequireBad(t, err, "lock of the exported hold", "other")
		require.ErrorContains(t, err, fmt.Sprintf("%q", h.Name()))
		require.NotContains(t, err.Error(), "kept-", "who reads it in a log cannot attach the lock")
		_, err = h.Export(t.Context(), 0)
		stage.RequireBad(t, err, "time to keep the lock", time.Duration(0))
		require.NoError(t, h.Unlock(t.Context()))
		_, err = new(lock.Hold).Export(t.Context(), stage.Handover)
		stage.RequireOnly(t, redlatch.ErrNotHeld, err)
	})
}

// The reply to Attach is lost. The client sends the command again, and has one grant.
func TestALostReplyOfAnAttachDoesNoHarm(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		stage.WarmUp(t, s.Locks)
		_, text := stage.Export(t, theirs)
		cut := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/transfer"), Times: 2, Action: redistest.CutReply()})
		h, err := mine.Attach(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, 2, cut.Bites())
		time.Sleep(time.Minute)
		require.True(t, h.Trusted())
		require.NoError(t, h.Unlock(t.Context()))
		_, err = theirs.TryLock(t.Context())
		require.NoError(t, err)
	})
}

// The caller leaves before the answer. Nobody has the lock then, and the client frees it.
func TestAnAttachOfUnknownOutcomeFreesTheLock(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		stage.WarmUp(t, s.Locks)
		_, text := stage.Export(t, theirs)
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/transfer"), Times: 1, Action: redistest.DelayReply(time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := mine.Attach(ctx, text)
		stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
		time.Sleep(2 * time.Second)
		h, err := theirs.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// A hook of go-redis ends the goroutine of an Attach after Redis has attached the lock. The caller
// sends the command itself, so the call does not return.
func TestAnAttachWhoseGoroutineEndsFreesTheLock(t *testing.T) {
	for kind, mutex := range attachers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
				mine, theirs := mutex(s.Locks), mutex(stage.LocksOn(t, s.Direct))
				stage.WarmUp(t, s.Locks)
				_, text := stage.Export(t, theirs)
				hook := &stage.GoexitHook{Script: "mutex/transfer"}
				s.Client.AddHook(hook)
				hook.Times.Store(1)
				returned := false
				stage.InGoroutine(func() { _, _ = mine.Attach(context.Background(), text); returned = true })
				require.False(t, returned)
				time.Sleep(5 * time.Second)
				h, err := theirs.TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock(t.Context()))
			})
		})
	}
}

// Attach ends by itself, although its context does not. Each attempt is swallowed, or none gets
// through.
func TestAnAttachWithoutADeadlineEnds(t *testing.T) {
	for name, c := range map[string]struct {
		lease time.Duration
		fault func(s *stage.Observed) *redistest.Fault
		want  error
		atEnd time.Duration
	}{
		"redis is down":        {time.Minute, func(s *stage.Observed) *redistest.Fault { s.Proxy.Down(); return nil }, redlatch.ErrUnavailable, 5 * time.Second},
		"replies do not come":  {time.Minute, swallowAttach, redlatch.ErrIndeterminate, 5 * time.Second},
		"the lease is shorter": {2 * time.Second, swallowAttach, redlatch.ErrIndeterminate, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				_, text := stage.Export(t, s.Other.Mutex("orders"))
				c.fault(s)
				began := time.Now()
				_, err := s.Locks.Mutex("orders").Attach(context.Background(), text)
				stage.RequireOnly(t, c.want, err)
				require.LessOrEqual(t, time.Since(began), c.atEnd)
				s.Proxy.Up()
			}, redlatch.WithLease(c.lease))
		})
	}
}

func swallowAttach(s *stage.Observed) *redistest.Fault {
	return s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/transfer"), Action: redistest.Swallow()})
}

func TestCloseEndsAnAttach(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		stage.WarmUp(t, s.Locks)
		_, text := stage.Export(t, s.Other.Mutex("orders"))
		swallowed := swallowAttach(s)
		ended := make(chan error)
		go func() {
			_, err := s.Locks.Mutex("orders").Attach(context.Background(), text)
			ended <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Locks.Close(context.Background()) }()
		stage.RequireOnly(t, redlatch.ErrClosed, <-ended)
		require.Equal(t, 1, swallowed.Bites(), "no attempt begins when the client closes")
		require.NoError(t, <-closed)
	})
}

// The process stops between the answer and the return of Attach, for as long as the lease. Somebody
// else may have the lock by then.
func TestAnAttachWhoseLeaseMayHaveEndedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 2 * time.Second
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }, redlatch.WithLease(lease))
		theirs := stage.LocksOn(t, s.Direct).Mutex("orders")
		mine := s.Locks.Mutex("orders")
		stage.WarmUp(t, s.Locks)
		_, text := stage.Export(t, theirs)
		hook := &pausesAfter{script: "mutex/transfer", delay: lease}
		s.Client.AddHook(hook)
		hook.times.Store(1)
		synctest.Wait() // nothing is in flight, so Attach sends its command itself, and stops with it
		_, err := mine.Attach(t.Context(), text)
		stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
		h, err := theirs.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// The command of an Export fails. The caller has no text, so nobody could go on with the lock.
func TestAnExportThatFailsKeepsNothing(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, h *lock.Hold){
		"unlock": func(t *testing.T, h *lock.Hold) { require.NoError(t, h.Unlock(t.Context())) },
		"export again": func(t *testing.T, h *lock.Hold) {
			_, err := h.Export(t.Context(), time.Second)
			require.NoError(t, err)
		},
		"unlock after": func(t *testing.T, h *lock.Hold) { require.NoError(t, h.UnlockAfter(t.Context(), time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
				h, err := mine.Lock(t.Context())
				require.NoError(t, err)
				refused := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/keep"), Action: redistest.Refuse("NOPERM")})
				_, err = h.Export(t.Context(), time.Hour)
				stage.RequireOnly(t, redlatch.ErrRefused, err)
				require.ErrorContains(t, err, "redlatch: export ")
				refused.Disarm()
				next(t, h)
				time.Sleep(2 * time.Second)
				free, err := theirs.TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, free.Unlock(t.Context()))
			})
		})
	}
}

// Redis runs the command of an Export, or runs it late, and its caller gives up before the answer.
// The next call frees the lock, or keeps it for its own time.
func TestAnExportWithoutAnAnswerKeepsNothing(t *testing.T) {
	next := map[string]func(t *testing.T, h *lock.Hold) (kept time.Duration){
		"unlock": func(t *testing.T, h *lock.Hold) time.Duration {
			require.NoError(t, h.Unlock(t.Context()))
			return 0
		},
		"export again": func(t *testing.T, h *lock.Hold) time.Duration {
			_, err := h.Export(t.Context(), stage.Handover)
			require.NoError(t, err)
			return stage.Handover
		},
	}
	for name, next := range next {
		for fault, action := range map[string]redistest.Action{"run": redistest.CutReply(), "late": redistest.HoldBack()} {
			t.Run(name+", "+fault, func(t *testing.T) {
				onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
					stage.WarmUp(t, s.Locks)
					h, err := mine.Lock(t.Context())
					require.NoError(t, err)
					silent := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/keep"), Action: action})
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					_, err = h.Export(ctx, time.Hour)
					require.ErrorIs(t, err, redlatch.ErrIndeterminate)
					require.NotZero(t, silent.Bites())
					silent.Disarm()
					began := time.Now()
					kept := next(t, h)
					silent.Release()
					free, err := theirs.Lock(t.Context())
					require.NoError(t, err)
					require.GreaterOrEqual(t, time.Since(began), kept)
					require.Less(t, time.Since(began), kept+time.Second)
					require.NoError(t, free.Unlock(t.Context()))
				})
			})
		}
	}
}

// The lock ended with its lease, before the repeated call. The text would be of no lock.
func TestAnExportThatIsRepeatedTooLateIsALoss(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, _ attacher) {
		h, err := mine.Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.Down()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = h.Export(ctx, stage.Handover)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		s.Proxy.Up()
		_, err = h.Export(t.Context(), stage.Handover)
		require.ErrorIs(t, err, redlatch.ErrLost)
	})
}

// The context of an Export ends while another command of the lock hangs. The background frees the
// lock, because the caller has no text.
func TestAnExportThatGivesUpFreesTheLock(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		h, err := mine.Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayReply(time.Second)})
		inner := make(chan *lock.Hold)
		go func() {
			i, err := mine.Lock(h.Context())
			require.NoError(t, err)
			inner <- i
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = h.Export(ctx, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, (<-inner).Unlock(t.Context()))
		time.Sleep(time.Second)
		_, err = h.Export(t.Context(), time.Hour)
		stage.RequireOnly(t, redlatch.ErrNotHeld, err)
		free, err := theirs.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, free.Unlock(t.Context()))
	})
}

// The function of Do exports its hold, and another process goes on.
func TestTheFunctionOfDoMayExportItsHold(t *testing.T) {
	onAttachers(t, func(t *testing.T, _ *stage.Observed, mine, theirs attacher) {
		text, err := redlatch.Call(t.Context(), mine, func(ctx context.Context) (string, error) {
			h, _ := redlatch.HoldFromContext(ctx)
			return h.Export(ctx, stage.Handover)
		})
		require.NoError(t, err)
		h, err := theirs.Attach(t.Context(), text)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// An exported hold that becomes garbage is no leak, and its lock stays until it is attached.
func TestAnExportedHoldMayBeForgotten(t *testing.T) {
	t.Parallel()
	g := newGarbage(t)
	mu := g.locks.Mutex(redistest.Name(t))
	text := func() string {
		h := stage.MustLock(t, t.Context(), mu)
		text, err := h.Export(t.Context(), time.Minute)
		require.NoError(t, err)
		return text
	}()
	g.collector() // fails if the log reports the hold
	runtime.GC()
	h, err := g.other.Mutex(mu.Name()).Attach(t.Context(), text)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

// Lock with the context of a lost hold returns the loss, and so does Attach: the work around it
// does not know yet that it has lost the lock. The text is good afterwards.
func TestAnAttachBelowALostHoldIsRefused(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		chain := redlatch.WithOwner(t.Context())
		for name, ctx := range map[string]context.Context{"path": t.Context(), "chain": chain} {
			lost, err := mine.Lock(ctx)
			require.NoError(t, err, name)
			_, err = s.Other.Mutex("orders").ForceRelease(t.Context(), lost.ID())
			require.NoError(t, err)
			<-lost.Lost()
			below := context.WithoutCancel(lost.Context())
			if name == "chain" {
				below = chain
			}
			_, text := stage.Export(t, theirs)
			_, err = mine.Attach(below, text)
			stage.RequireOnly(t, redlatch.ErrLost, err)
			var loss *redlatch.LostError
			require.ErrorAs(t, err, &loss)
			require.Equal(t, lost.ID(), loss.ID, "and not that of the text")
			require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)

			h, err := mine.Attach(below, text)
			require.NoError(t, err, "the holder knows of the loss")
			require.Greater(t, h.Fence(), lost.Fence())
			require.NoError(t, h.Unlock(t.Context()))
		}
	})
}

// A lock that was attached in the client that exported it goes on there.
func TestAHoldMayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		old, text := stage.Export(t, s.Mutex)
		h, err := s.Mutex.Attach(t.Context(), text)
		require.NoError(t, err)
		require.Greater(t, h.Fence(), old.Fence())
		waits := make(chan *lock.Hold)
		go func() { waits <- s.Lock(context.Background()) }()
		synctest.Wait()
		s.Unlock(h)
		s.Unlock(<-waits)
		s.NothingLeft()
	})
}

// The client closes while an Export is in flight. Redis keeps the lock, and the text is good.
func TestCloseDoesNotFreeWhatWasExported(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		h, err := mine.Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/keep"), Times: 1, Action: redistest.DelayReply(300 * time.Millisecond)})
		text, exported := "", make(chan error)
		go func() {
			var err error
			text, err = h.Export(context.Background(), stage.Handover)
			exported <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Locks.Close(context.Background()) }()
		require.NoError(t, <-exported)
		require.NoError(t, <-closed)
		attached, err := theirs.Attach(t.Context(), text)
		require.NoError(t, err)
		require.NoError(t, attached.Unlock(t.Context()))
	})
}

// Unlock and Export of one hold wait for the same command. The first of them ends the hold, in its
// way.
func TestAnUnlockBesideAnExportFreesTheLock(t *testing.T) {
	onAttachers(t, func(t *testing.T, s *stage.Observed, mine, theirs attacher) {
		h, err := mine.Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayReply(time.Second)})
		ctx, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
		defer cancel()
		go func() { _, _ = mine.Lock(ctx) }()
		synctest.Wait()
		unlocked, exported := make(chan error, 1), make(chan error, 1)
		go func() { unlocked <- h.Unlock(context.Background()) }()
		synctest.Wait()
		go func() { _, err := h.Export(context.Background(), time.Hour); exported <- err }()
		require.NoError(t, <-unlocked)
		stage.RequireOnly(t, redlatch.ErrNotHeld, <-exported)
		free, err := theirs.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, free.Unlock(t.Context()))
	})
}

func TestAnAttachedLockHasTheDescriptionOfItsNewClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithDescription("process A"))
		text, err := s.Lock(t.Context()).Export(t.Context(), time.Minute)
		require.NoError(t, err)
		m := stage.LocksOn(t, s.Direct, redlatch.WithDescription("process B")).Mutex(s.Name)
		h, err := m.Attach(t.Context(), text)
		require.NoError(t, err)
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "process B", info.Description)
		s.Unlock(h)
	})
}
