package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: work that was done under its lock counts as done, although Redis does not
// confirm the release. Do does not wait for that longer than for one command, and the client goes
// on with it.

// With the default settings.

var errWork = errors.New("the work failed")

// Outages are the two ways in which a client cannot reach Redis.

func TestDoIsDoneThoughRedisDoesNotConfirmTheRelease(t *testing.T) {
	for outage, begin := range stage.Outages {
		for _, kind := range stage.Primitives {
			t.Run(kind+", redis is "+outage, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					var began time.Time
					err := stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error {
						began = time.Now()
						begin(s)
						return nil
					})
					require.NoError(t, err)
					require.LessOrEqual(t, time.Since(began), stage.TimeOfOneCommand)
					s.Proxy.Up()
					s.Proxy.Heal()
					_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
					require.NoError(t, err)
					require.Less(t, time.Since(began), 5*time.Second, "the client goes on with the release, and the lease is not waited for")
					require.NoError(t, release(t.Context()))
					require.Error(t, s.Take(t, event.Released).Err, "observers learn of it")
				})
			})
		}
	}
}

// The error of the work is all that Do returns, also if the release fails.
func TestDoInAnOutageReturnsTheErrorOfTheWork(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				err := stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error {
					s.Proxy.Down()
					return errWork
				})
				require.True(t, err == errWork, "the very error: %v", err) //nolint:errorlint // the very error
				s.Proxy.Up()
			})
		})
	}
}

// Close waits for a release that Do left to the background, as long as it waits for its own.
func TestCloseWaitsForAReleaseOfDo(t *testing.T) {
	for outage, begin := range stage.Outages {
		for _, kind := range stage.Primitives {
			t.Run(kind+", redis is "+outage, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { begin(s); return nil }))
					began := time.Now()
					time.AfterFunc(8*time.Second, func() { s.Proxy.Up(); s.Proxy.Heal() })
					require.NoError(t, s.Locks.Close(t.Context()))
					require.GreaterOrEqual(t, time.Since(began), 8*time.Second)
					closed := time.Now()
					_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
					require.NoError(t, err)
					require.Less(t, time.Since(closed), time.Second, "nobody has it")
					require.NoError(t, release(t.Context()))
				})
			})
		}
	}
}

// If Redis stays away, Close says which locks it could not release, whoever began that. It gives up
// when the leases have ended.
func TestCloseSaysThatAReleaseOfDoFailed(t *testing.T) {
	kindOf := map[string]error{"down": redlatch.ErrUnavailable, "silent": redlatch.ErrIndeterminate}
	for outage, begin := range stage.Outages {
		for _, kind := range stage.Primitives {
			t.Run(kind+", redis is "+outage, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { begin(s); return nil }))
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					err := s.Locks.Close(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, kindOf[outage])
					require.ErrorContains(t, err, `"orders"`)
					require.LessOrEqual(t, time.Since(began), 10*time.Second+stage.TimeOfOneCommand)
				})
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { begin(s); return nil }))
					began := time.Now()
					err := s.Locks.Close(context.Background())
					require.ErrorIs(t, err, kindOf[outage])
					require.ErrorContains(t, err, `"orders"`)
					require.LessOrEqual(t, time.Since(began), stage.LeaseByDefault+2*stage.TimeOfOneCommand)
				})
			})
		}
	}
}

// Close retries its own releases until the leases have ended, and does not begin again in the
// background.
func TestCloseGivesUpWithTheLeases(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				s.Proxy.Down()
				began := time.Now()
				require.ErrorIs(t, s.Locks.Close(context.Background()), redlatch.ErrUnavailable)
				require.LessOrEqual(t, time.Since(began), stage.LeaseByDefault+stage.TimeOfOneCommand)
				s.Proxy.Up()
				runtime.KeepAlive(h)
			})
		})
	}
}

// Each level of nested calls waits for one command.
func TestNestedDosInAnOutageAddUpTheTimeOfOneCommandEach(t *testing.T) {
	for outage, begin := range stage.Outages {
		for _, kind := range []string{"mutex", "fair"} {
			t.Run(kind+", redis is "+outage, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					var began time.Time
					err := stage.DoCalls[kind](s.Locks, t.Context(), func(ctx context.Context) error {
						return stage.DoCalls[kind](s.Locks, ctx, func(ctx context.Context) error {
							return stage.DoCalls[kind](s.Locks, ctx, func(context.Context) error {
								began = time.Now()
								begin(s)
								return nil
							})
						})
					})
					require.NoError(t, err)
					require.LessOrEqual(t, time.Since(began), 3*stage.TimeOfOneCommand)
					s.Proxy.Up()
					s.Proxy.Heal()
					_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
					require.NoError(t, err)
					require.Less(t, time.Since(began), 10*time.Second)
					require.NoError(t, release(t.Context()))
				})
			})
		}
	}
}

// A refusal does not go away by itself, so somebody has to learn of it.
func TestDoSaysThatRedisRefusesTheRelease(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				refuse := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Release), Action: redistest.Refuse("NOPERM this user has no permissions")})
				began := time.Now()
				err := stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { return nil })
				require.ErrorIs(t, err, redlatch.ErrRefused)
				require.LessOrEqual(t, time.Since(began), stage.TimeOfOneCommand)
				var failed *redlatch.OpError
				require.ErrorAs(t, err, &failed)
				require.Contains(t, []string{"unlock", "release"}, failed.Op, "so the work ran")
				refuse.Disarm()
			})
		})
	}
}

// The outer hold frees the lock, so a Do inside of it has nothing to report and nothing to wait
// for.
func TestAnInnerReleaseThatFailsIsLeftToTheOuterOne(t *testing.T) {
	failures := map[string]redistest.Action{
		"refused":                     redistest.Refuse("NOPERM this user has no permissions"),
		"no answer, and Redis did it": redistest.CutReply(),
		"no answer, and it was lost":  redistest.CutRequest(),
	}
	for _, kind := range []string{"mutex", "fair"} {
		for name, failure := range failures {
			t.Run(kind+", "+name, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(ctx context.Context) error {
						fault := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/release"), Action: failure}) // of all mutexes
						began := time.Now()
						for range 2 { // the second one does not wait for the background either
							require.NoError(t, stage.DoCalls[kind](s.Locks, ctx, func(context.Context) error { return nil }))
						}
						require.Zero(t, time.Since(began), "it does not repeat the command")
						require.NotZero(t, fault.Bites())
						time.Sleep(stage.LeaseByDefault + 10*time.Second)
						require.Less(t, fault.Bites(), 200, "the background corrects the number, with pauses")
						fault.Disarm()
						time.Sleep(time.Second)
						hold, _ := redlatch.HoldFromContext(ctx)
						stored, err := s.Direct.HGet(ctx, "orders", hold.ID()).Result()
						require.NoError(t, err)
						require.Equal(t, "1", stored, "however long that took")
						return nil
					}))
					_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
					require.NoError(t, err)
					require.NoError(t, release(t.Context()))
				})
			})
		}
	}
}

// Close has released the lock under the work, so the work may have run beside that of somebody
// else.
func TestDoSaysThatTheClientWasClosedUnderItsWork(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				err := stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { return s.Locks.Close(t.Context()) })
				require.ErrorIs(t, err, redlatch.ErrClosed)
			})
		})
	}
}

// A release that Redis refuses says nothing about the lock to those who wait for it.
func TestAWaiterDoesNotTakeARefusedReleaseForAnOutage(t *testing.T) {
	for _, kind := range []string{"mutex", "fair"} {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(ctx context.Context) error {
					refused := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/release"), Action: redistest.Refuse("NOPERM this user has no permissions")})
					require.NoError(t, stage.DoCalls[kind](s.Locks, ctx, func(context.Context) error { return nil }))
					wait, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_, _, err := stage.Kinds[kind].Take(s.Locks, wait)
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					refused.Disarm()
					return nil
				}))
			})
		})
	}
}

// The command of an inner release hangs. Another one gave up meanwhile and is left to the
// background, which Redis refuses. A re-entry does not wait for it until trust ends.
func TestAReentryDoesNotWaitForAnInnerReleaseInTheBackground(t *testing.T) {
	for _, kind := range []string{"mutex", "fair"} {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				nothing := func(context.Context) error { return nil }
				require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(ctx context.Context) error {
					s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/release"), Times: 1, Action: redistest.Swallow()})
					var g sync.WaitGroup
					g.Go(func() { _ = stage.DoCalls[kind](s.Locks, ctx, nothing) })
					g.Go(func() {
						soon := redlatch.WithWaitDeadline(ctx, time.Now().Add(time.Millisecond))
						_ = stage.DoCalls[kind](s.Locks, soon, func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
					})
					time.Sleep(200 * time.Millisecond)
					refused := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/release"), Action: redistest.Refuse("NOPERM this user has no permissions")})
					g.Wait()
					time.Sleep(3 * time.Second)
					require.NotZero(t, refused.Bites())
					began := time.Now()
					require.NoError(t, stage.DoCalls[kind](s.Locks, ctx, nothing))
					require.Zero(t, time.Since(began))
					refused.Disarm()
					return nil
				}))
			})
		})
	}
}

// A grant comes too late to be trusted, and Redis refuses its release. The work did not run, and
// the error is not that of an unlock.
func TestARefusedReleaseBeforeTheWorkIsAnErrorOfTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 300 * time.Millisecond
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }, redlatch.WithLease(lease))
		stage.WarmUp(t, s.Locks)
		late := &pausesAfter{script: "mutex/acquire", delay: lease}
		late.times.Store(1)
		s.Client.AddHook(late)
		refused := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/release"), Action: redistest.Refuse("NOPERM this user has no permissions")})
		err := s.Mutex.TryDo(t.Context(), func(context.Context) error { panic("it must not run") })
		require.NotZero(t, refused.Bites())
		require.ErrorIs(t, err, redlatch.ErrRefused)
		var failed *redlatch.OpError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "lock", failed.Op)
		refused.Disarm()
	})
}
