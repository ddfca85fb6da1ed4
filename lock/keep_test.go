package lock_test

import (
	"cmp"
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: Redis keeps a lock for a time after its last hold, and nobody renews it.

const cooldown = 90 * time.Second // three leases

// keepers release one kind of primitive each, and keep it.
var keepers = map[string]func(h stage.Held, ctx context.Context, d time.Duration) error{
	"mutex": func(h stage.Held, ctx context.Context, d time.Duration) error {
		return h.(*lock.Hold).UnlockAfter(ctx, d)
	},
	"fair": func(h stage.Held, ctx context.Context, d time.Duration) error {
		return h.(*lock.Hold).UnlockAfter(ctx, d)
	},
	"semaphore": func(h stage.Held, ctx context.Context, d time.Duration) error {
		return h.(*semaphore.Permit).ReleaseAfter(ctx, d)
	},
}

// whileLoading has the server refuse all scripts, because it loads its data.
var whileLoading = redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("LOADING no")}

// failWithin asserts that a call fails within d, because Redis cannot be asked.
func failWithin(t *testing.T, d time.Duration, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.ErrorIs(t, call(ctx), redlatch.ErrUnavailable)
}

// requireKeepOp asserts that the error says what its caller called.
func requireKeepOp(t *testing.T, kind string, err error) {
	t.Helper()
	want := "unlock after"
	if kind == "semaphore" {
		want = "release after"
	}
	var op *redlatch.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, want, op.Op)
}

func TestALockIsKeptAfterItsLastHold(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				time.Sleep(time.Minute)
				ctx := h.Context()
				require.NoError(t, keep(h, ctx, cooldown), "its own end does not end it")
				ended := time.Now()
				require.Error(t, ctx.Err())
				require.False(t, stage.IsClosed(h.Lost()), "not lost, but released")
				require.ErrorIs(t, release(t.Context()), redlatch.ErrNotHeld)
				requireKeepOp(t, kind, keep(h, t.Context(), cooldown))
				require.NoError(t, s.Take(t, event.Released).Err)
				requireKept(t, kind, s.Other)

				for _, c := range []*redlatch.Client{s.Locks, s.Other} { // the same client too
					time.Sleep(cooldown/2 - 5*time.Second)
					short, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _, err = stage.Kinds[kind].Take(c, short)
					cancel()
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				}
				require.NoError(t, s.Locks.Close(t.Context()), "the process ends")
				_, release, err = stage.Kinds[kind].Take(s.Other, t.Context())
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(ended), cooldown)
				require.Less(t, time.Since(ended), cooldown+time.Second)
				require.NoError(t, release(t.Context()))
			})
		})
	}
}

// requireKept asserts that operators and those who try learn that nobody holds the lock.
func requireKept(t *testing.T, kind string, c *redlatch.Client) {
	t.Helper()
	if kind == "semaphore" {
		info, err := c.Semaphore("orders", 1).Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.True(t, info.Holders[0].IsKept())
		return
	}
	info, err := c.Mutex("orders").Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.IsKept() && info.Held())
	_, err = c.Mutex("orders").TryLock(t.Context())
	var refused *redlatch.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.IsKept())
	require.ErrorContains(t, err, ": kept (")
}

// A time below the lease shortens it.
func TestALockIsKeptForLessThanItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		require.NoError(t, h.UnlockAfter(t.Context(), 1500*time.Millisecond))
		began := time.Now()
		next := s.Lock(t.Context())
		require.Greater(t, next.Fence(), h.Fence())
		require.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond)
		require.Less(t, time.Since(began), 2*time.Second)
		s.Unlock(next)
	})
}

// The hold of a re-entry asks for it, and an outer one ends last.
func TestALockIsKeptWhenTheLastOfSeveralHoldsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(t.Context())
		for _, d := range []time.Duration{cooldown, time.Second} { // the longest counts
			require.NoError(t, s.Lock(outer.Context()).UnlockAfter(t.Context(), d))
		}
		time.Sleep(time.Hour)
		require.True(t, outer.Trusted(), "it is still held, and renewed")
		s.Unlock(outer)
		left, err := s.Direct.PTTL(t.Context(), s.Name).Result()
		require.NoError(t, err)
		require.Equal(t, cooldown, left)
		require.ErrorIs(t, outer.UnlockAfter(t.Context(), time.Hour), redlatch.ErrNotHeld)
		left, err = s.Direct.PTTL(t.Context(), s.Name).Result()
		require.NoError(t, err)
		require.Equal(t, cooldown, left)
	})
}

// The function of Do ends the hold itself. Do does not unlock, and reports nothing.
func TestTheFunctionOfDoMayEndItsHold(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		for name, end := range map[string]func(h *lock.Hold, ctx context.Context) error{
			"keep":   func(h *lock.Hold, ctx context.Context) error { return h.UnlockAfter(ctx, cooldown) },
			"unlock": (*lock.Hold).Unlock,
		} {
			require.NoError(r, r.Mutex(name).Do(r.Context(), func(ctx context.Context) error {
				h, _ := redlatch.HoldFromContext(ctx)
				return end(h, ctx)
			}))
			info, err := r.Mutex(name).Inspect(r.Context())
			require.NoError(r, err)
			require.Equal(r, name == "keep", info.Held())
		}
	})
}

// Redis does not confirm it. The error says so, the lock is not renewed, and a later call repeats
// it.
func TestALockThatCouldNotBeKeptEndsWithItsLease(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				s.Proxy.Down()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = keep(h, ctx, cooldown)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				requireKeepOp(t, kind, err)
				s.Proxy.Up()
				time.Sleep(time.Second)
				require.NoError(t, keep(h, t.Context(), cooldown))
				short, cancel := context.WithTimeout(t.Context(), cooldown-time.Second)
				defer cancel()
				_, _, err = stage.Kinds[kind].Take(s.Locks, short)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			})
		})
	}
}

// After an UnlockAfter that failed, a plain Unlock or Release keeps the lock for as long. The work
// that wanted the pause is done.
func TestAPlainUnlockKeepsWhatAFailedUnlockAfterWanted(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				refused := s.Proxy.Inject(redistest.Rule{Match: isKeep, Action: redistest.Refuse("NOPERM")})
				err = keep(h, t.Context(), cooldown)
				require.ErrorIs(t, err, redlatch.ErrRefused)
				requireKeepOp(t, kind, err)
				refused.Disarm()
				require.NoError(t, release(t.Context()))
				short, cancel := context.WithTimeout(t.Context(), cooldown-time.Second)
				defer cancel()
				_, _, err = stage.Kinds[kind].Take(s.Locks, short)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			})
		})
	}
}

// An Unlock has failed, so the background tries to release the lock while the program calls
// UnlockAfter or Export. Their commands do not mix: the server begins to answer at another instant
// in each round.
func TestACallWaitsForTheReleaseInTheBackground(t *testing.T) {
	duringRelease := func(t *testing.T, kind string, round int, call func(t *testing.T, s *stage.Scene, h stage.Held)) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			loading := s.Proxy.Inject(whileLoading)
			failWithin(t, 100*time.Millisecond, release)
			time.Sleep(500 * time.Millisecond)
			time.AfterFunc(3*time.Second+time.Duration(round)*17*time.Millisecond, loading.Disarm)
			call(t, s, h)
		})
	}
	const rounds = 20
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			for round := range rounds {
				duringRelease(t, kind, round, func(t *testing.T, s *stage.Scene, h stage.Held) {
					require.NoError(t, keep(h, t.Context(), cooldown))
					short, cancel := context.WithTimeout(t.Context(), cooldown-time.Second)
					defer cancel()
					_, _, err := stage.Kinds[kind].Take(s.Locks, short)
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				})
			}
		})
	}
	t.Run("export", func(t *testing.T) {
		for round := range rounds {
			duringRelease(t, "mutex", round, func(t *testing.T, s *stage.Scene, h stage.Held) {
				text, err := h.(*lock.Hold).Export(t.Context(), time.Minute)
				require.NoError(t, err)
				time.Sleep(5 * time.Second)
				attached, err := s.Locks.Mutex("orders").Attach(t.Context(), text)
				require.NoError(t, err)
				require.NoError(t, attached.Unlock(t.Context()))
			})
		}
	})
}

// An Export fails, then an Unlock, and the background frees the lock. An UnlockAfter does not claim
// that Redis kept it, not even after a lease.
func TestALockThatWasFreedAfterAFailedExportIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		loading := s.Proxy.Inject(whileLoading)
		failWithin(t, 100*time.Millisecond, func(ctx context.Context) error {
			_, err := h.Export(ctx, time.Minute)
			return err
		})
		failWithin(t, 100*time.Millisecond, h.Unlock)
		loading.Disarm()
		time.Sleep(2 * stage.LeaseByDefault)
		require.ErrorIs(t, h.UnlockAfter(t.Context(), time.Second), redlatch.ErrNotHeld)
	})
}

// An Unlock fails, then an UnlockAfter. The background has Redis keep the lock, and that time ends.
// Another UnlockAfter is no loss.
func TestATimeThatTheBackgroundBeganIsNoLoss(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				loading := s.Proxy.Inject(whileLoading)
				failWithin(t, 100*time.Millisecond, release)
				// Longer than an attempt of the background, which has begun to free the lock. The
				// next ones keep it.
				failWithin(t, 5*time.Second, func(ctx context.Context) error { return keep(h, ctx, time.Second) })
				loading.Disarm()
				time.Sleep(10 * time.Second)
				require.NoError(t, keep(h, t.Context(), time.Second))
				require.Empty(t, s.Of(event.Lost))
			})
		})
	}
}

// An attempt of the acquire is still in flight when an UnlockAfter fails. The client does not
// release what that attempt may get before the next UnlockAfter, because it is the same lock.
func TestAFailedUnlockAfterDoesNotFreeTheLock(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				lost := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Times: 1, Action: redistest.LoseReply()})
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, lost.Bites())
				loading := s.Proxy.Inject(whileLoading)
				failWithin(t, 100*time.Millisecond, func(ctx context.Context) error { return keep(h, ctx, cooldown) })
				loading.Disarm()
				time.Sleep(5 * time.Second)
				require.NoError(t, keep(h, t.Context(), cooldown))
			})
		})
	}
}

// An Unlock fails, and the background frees the lock soon after. A later UnlockAfter or Export does
// not claim that Redis keeps the lock, nor that it was lost.
func TestALockThatAFailedUnlockHasFreedIsNotKept(t *testing.T) {
	export := func(h stage.Held, ctx context.Context, d time.Duration) error {
		_, err := h.(*lock.Hold).Export(ctx, d)
		return err
	}
	calls := maps.Clone(keepers)
	calls["export"] = export
	for kind, keep := range calls {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				take := stage.Kinds[kind]
				if kind == "export" {
					take = stage.Kinds["mutex"]
				}
				h, release, err := take.Take(s.Locks, t.Context())
				require.NoError(t, err)
				away := s.Proxy.Inject(whileLoading)
				failWithin(t, 100*time.Millisecond, release)
				away.Disarm()
				time.Sleep(8 * time.Second)
				require.ErrorIs(t, keep(h, t.Context(), cooldown), redlatch.ErrNotHeld)
				require.ErrorIs(t, release(t.Context()), redlatch.ErrNotHeld)
				require.Empty(t, s.Of(event.Lost))
				_, _, err = take.Take(s.Locks, t.Context())
				require.NoError(t, err)
			})
		})
	}
}

// While another command hangs, an Unlock gives up, and the background frees the lock. An
// UnlockAfter after that, or while the background does it, does not claim that Redis keeps the
// lock.
func TestALockThatTheBackgroundHasFreedIsNotKept(t *testing.T) {
	for kind, keep := range keepers {
		for name, after := range map[string]time.Duration{"later": 8 * time.Second, "meanwhile": 100 * time.Millisecond} {
			t.Run(kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
					within := func(d time.Duration) error {
						ctx, cancel := context.WithTimeout(t.Context(), d)
						defer cancel()
						return release(ctx)
					}
					hangs := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Times: 1, Action: redistest.Swallow()})
					slow := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Times: 1, Action: redistest.DelayReply(500 * time.Millisecond)})
					first := make(chan error)
					go func() { first <- within(time.Second) }()
					synctest.Wait()
					require.ErrorIs(t, within(100*time.Millisecond), redlatch.ErrIndeterminate)
					require.Error(t, <-first)
					time.Sleep(after)
					require.Equal(t, []int{1, 1}, []int{hangs.Bites(), slow.Bites()})
					err = keep(h, t.Context(), cooldown)
					require.ErrorIs(t, err, redlatch.ErrNotHeld)
					requireKeepOp(t, kind, err)
					_, _, err = stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
				})
			})
		}
	}
}

// The reply to the command that keeps the lock is lost. When the client sends it again, that time
// is over.
func TestATimeThatEndedBehindALostReplyIsNoLoss(t *testing.T) {
	for kind, keep := range keepers {
		for name, c := range map[string]struct {
			d       time.Duration
			then    time.Duration // of the second call, if it wants another time
			vanish  bool          // before the client sends it again
			retried bool          // the program calls it twice, and the client sends it once each time
			lost    bool
		}{
			"over":                             {d: time.Second},
			"over, and called again":           {d: time.Second, retried: true},
			"over, and then for longer":        {d: time.Second, then: cooldown, retried: true, lost: true},
			"over, and then for less":          {d: time.Second, then: time.Millisecond, retried: true},
			"not over, and Redis has the lock": {d: cooldown},
			"not over, and Redis lost it":      {d: cooldown, vanish: true, lost: true},
			"not over, called again":           {d: cooldown, vanish: true, retried: true, lost: true},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
					lost := s.Proxy.Inject(redistest.Rule{Match: isKeep, Times: 1, Action: redistest.LoseReply()})
					if c.vanish {
						time.AfterFunc(time.Second, func() { require.NoError(t, s.Direct.FlushAll(t.Context()).Err()) })
					}
					if c.retried {
						bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						require.ErrorIs(t, keep(h, bounded, c.d), redlatch.ErrIndeterminate)
						cancel()
						time.Sleep(2 * time.Second)
					}
					err = keep(h, t.Context(), cmp.Or(c.then, c.d))
					require.Equal(t, 1, lost.Bites())
					if c.lost {
						require.ErrorIs(t, err, redlatch.ErrLost)
						return
					}
					require.NoError(t, err)
					require.False(t, stage.IsClosed(h.Lost()))
				})
			})
		}
	}
}

// A second call, whose reply is lost too, found that the time of the first one was over. A third
// call knows that.
func TestATimeThatEndedStaysOver(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				lost := s.Proxy.Inject(redistest.Rule{Match: isKeep, Times: 2, Action: redistest.LoseReply()})
				for _, pause := range []time.Duration{2 * time.Second, 0} {
					bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					require.ErrorIs(t, keep(h, bounded, time.Second), redlatch.ErrIndeterminate)
					cancel()
					time.Sleep(pause)
				}
				require.Equal(t, 2, lost.Bites())
				require.NoError(t, keep(h, t.Context(), time.Second))
			})
		})
	}
}

// Without a lost reply, a lock that Redis no longer has was lost, however short the time.
func TestAKeepOfALockThatRedisLostIsALoss(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
				require.ErrorIs(t, keep(h, t.Context(), time.Millisecond), redlatch.ErrLost)
			})
		})
	}
}

// The fence of a lock lives for as long as Redis keeps the lock, also if a part of its life was
// over.
func TestTheFenceOfAKeptLockOutlastsIt(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h, _, err := stage.Kinds["mutex"].Take(s.Locks, t.Context())
		require.NoError(t, err)
		fence := key.ForMutex("orders").Fence
		for s.Direct.PTTL(t.Context(), fence).Val() > 57*time.Second { // until a renewal is about to keep it for longer
			time.Sleep(time.Second)
		}
		require.NoError(t, keepers["mutex"](h, t.Context(), time.Minute))
		for range 59 {
			time.Sleep(time.Second)
			require.EqualValues(t, 1, s.Direct.Exists(t.Context(), "orders").Val())
			require.EqualValues(t, 1, s.Direct.Exists(t.Context(), fence).Val())
		}
	}, redlatch.WithFenceRetention(time.Minute))
}

// Commands of the hold arrive when Redis keeps the lock: a copy of the acquire, a renewal.
func TestLateCommandsDoNotShortenTheTimeOfALock(t *testing.T) {
	for kind, keep := range keepers {
		for what, late := range map[string]func(cmd []string) bool{
			"acquire": isTake,
			"renewal": func(cmd []string) bool { return stage.Runs("mutex/renew")(cmd) || stage.Runs("semaphore/renew")(cmd) },
		} {
			t.Run(kind+", "+what, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					kept := s.Copies(late)
					h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
					time.Sleep(20 * time.Second)
					require.NoError(t, keep(h, t.Context(), cooldown))
					require.Equal(t, 1, kept.Late())
					kept.Release()
					s.RefusedFor(kind, cooldown-time.Second)
				})
			})
		}
	}
}

// isTake matches the commands that acquire.
var isTake = func(cmd []string) bool {
	return stage.AnAcquire(cmd) || stage.Runs("fair/join")(cmd) || stage.Runs("semaphore/acquire")(cmd)
}

// The acquire was answered at the second attempt, and the client releases what the first may have
// got.
func TestAKeptLockIsNotReleasedWithTheRequestsInFlight(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.NoError(t, release(t.Context()))
				slow := s.Proxy.Inject(redistest.Rule{Match: isTake, Times: 1, Action: redistest.DelayReply(time.Hour)})
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, slow.Bites())
				require.NoError(t, keep(h, t.Context(), cooldown))
				s.RefusedFor(kind, cooldown-time.Second)
			})
		})
	}
}

// The lock ended with its lease, before the repeated call. Nobody knows whether Redis kept it.
func TestAKeepThatIsRepeatedTooLateIsALoss(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				s.Proxy.Down()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, keep(h, ctx, cooldown), context.DeadlineExceeded)
				time.Sleep(time.Minute)
				s.Proxy.Up()
				require.ErrorIs(t, keep(h, t.Context(), cooldown), redlatch.ErrLost)
			})
		})
	}
}

func TestALockThatWasLostIsNotKept(t *testing.T) {
	for kind, keep := range keepers {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
			require.ErrorIs(t, keep(h, t.Context(), cooldown), redlatch.ErrLost)
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
		})
	}
}

// The reply is lost, and the client sends the command again.
func TestALostReplyDoesNotShortenTheTimeOfALock(t *testing.T) {
	for kind, script := range map[string]string{"mutex": "mutex/keep", "fair": "mutex/keep", "semaphore": "semaphore/keep"} {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			lost := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(script), Times: 2, Action: redistest.CutReply()})
			require.NoError(t, keepers[kind](h, t.Context(), cooldown))
			require.Equal(t, 2, lost.Bites())
			short, cancel := context.WithTimeout(t.Context(), cooldown-time.Second)
			defer cancel()
			_, _, err = stage.Kinds[kind].Take(s.Locks, short)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		})
	}
}

func TestTimesThatAreNotUsableKeepNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		for kind, keep := range keepers {
			h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			for _, d := range []time.Duration{0, -time.Second, time.Microsecond, time.Second + 1, 366 * 24 * time.Hour} {
				stage.RequireBad(t, keep(h, t.Context(), d), "time to keep the lock", d)
			}
			require.NoError(t, h.Context().Err(), "it is still held")
			require.NoError(t, release(t.Context()))
			s.Free()
		}
		require.ErrorIs(t, new(lock.Hold).UnlockAfter(t.Context(), time.Second), redlatch.ErrNotHeld)
		require.ErrorIs(t, (*semaphore.Permit)(nil).ReleaseAfter(t.Context(), time.Second), redlatch.ErrNotHeld)
	})
}

// The client closes while the command that keeps the lock is in flight, or while an outer hold is
// left.
func TestCloseKeepsWhatWasToBeKept(t *testing.T) {
	for kind, keep := range keepers {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				other := stage.LocksOn(t, s.Direct)
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				s.Proxy.Inject(redistest.Rule{Match: isKeep, Times: 1, Action: redistest.DelayReply(300 * time.Millisecond)})
				kept := make(chan error)
				go func() { kept <- keep(h, context.Background(), cooldown) }()
				synctest.Wait()
				closed := make(chan error, 1)
				go func() { closed <- s.Locks.Close(context.Background()) }()
				require.NoError(t, <-kept)
				require.NoError(t, <-closed)
				short, cancel := context.WithTimeout(t.Context(), cooldown-time.Second)
				defer cancel()
				_, _, err = stage.Kinds[kind].Take(other, short)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(t.Context())
		require.NoError(t, s.Lock(outer.Context()).UnlockAfter(t.Context(), cooldown))
		require.NoError(t, s.Locks.Close(t.Context()))
		require.EqualValues(t, 1, s.Direct.Exists(t.Context(), s.Name).Val())
	})
}
