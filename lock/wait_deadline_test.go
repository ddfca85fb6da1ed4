package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lockerr"
)

// The goal of this file: a wait deadline is one limit for all waits of a call chain. It ends
// nothing else, and neither a free lock nor a re-entry fails because it is over.

const (
	atTheDeadline   = "gave up at the wait deadline (WithWaitDeadline)"
	deadlineWasOver = "the wait deadline was over (WithWaitDeadline)"
	lateGaveUp      = "gave up after 1s, with the wait deadline over (WithWaitDeadline)"
)

// lockers are the kinds of lock that re-enter.
var lockers = map[string]func(c *redlatch.Client, name string) redlatch.Locker{
	"mutex": func(c *redlatch.Client, name string) redlatch.Locker { return c.Mutex(name) },
	"fair":  func(c *redlatch.Client, name string) redlatch.Locker { return c.FairMutex(name) },
}

// inDeadlineBubbles plays a test with each kind of lock.
func inDeadlineBubbles(t *testing.T, play func(t *testing.T, s *stage.Observed, kind string), options ...redlatch.Option) {
	t.Helper()
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) { play(t, s, kind) }, options...)
		})
	}
}

// bounded returns a context with a wait deadline, for calls that a library without one would not
// end.
func bounded(t *testing.T, in time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return redlatch.WithWaitDeadline(ctx, time.Now().Add(in))
}

func isRefusedOnly(t *testing.T, err error, name, why string) {
	t.Helper()
	var busy *lockerr.NotAcquiredError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, name, busy.Name)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.ErrorContains(t, err, why)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller set no deadline")
	require.NotErrorIs(t, err, context.Canceled)
}

func TestTwoLocksShareAWaitDeadline(t *testing.T) {
	inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
		freeOrders, freeAccounts := s.Taken(t, kind, "orders"), s.Taken(t, kind, "accounts")
		defer freeAccounts()
		time.AfterFunc(1500*time.Millisecond, freeOrders)
		began := time.Now()
		inner := false
		err := stage.ByName[kind].Do(s.Locks, bounded(t, 2*time.Second), "orders", func(ctx context.Context) error {
			require.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond)
			inner = true
			return stage.ByName[kind].Do(s.Locks, ctx, "accounts", func(context.Context) error { return errors.New("the work ran") })
		})
		require.True(t, inner, "%v", err)
		require.Equal(t, 2*time.Second, time.Since(began), "both waits together")
		isRefusedOnly(t, err, "accounts", atTheDeadline)
		waits := s.Of(event.WaitEnded)
		require.Equal(t, event.Busy, waits[len(waits)-1].Result)
	})
}

// The context of a hold, and redlatch.Call, have the wait deadline too.
func TestEveryDerivedContextHasTheWaitDeadline(t *testing.T) {
	for kind, locker := range lockers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				defer s.Taken(t, kind, "accounts")()
				began := time.Now()
				h, err := locker(s.Locks, "orders").Lock(bounded(t, waitTimeout))
				require.NoError(t, err)
				joined, stop := h.Bind(context.WithoutCancel(h.Context()))
				defer stop()
				_, err = redlatch.Call(joined, locker(s.Locks, "accounts"), func(context.Context) (int, error) { return 0, errors.New("the work ran") })
				require.Equal(t, waitTimeout, time.Since(began))
				isRefusedOnly(t, err, "accounts", atTheDeadline)
				require.NoError(t, h.Unlock(t.Context()))
			})
		})
	}
}

func TestTheEarlierOfTimeoutAndWaitDeadlineCounts(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, end time.Duration
		why           string
	}{
		"the deadline": {time.Second, time.Second, atTheDeadline},
		"the timeout":  {3 * time.Second, waitTimeout, "gave up after 2s (WithWaitTimeout)"},
	} {
		t.Run(name, func(t *testing.T) {
			inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
				defer s.Taken(t, kind, "orders")()
				began := time.Now()
				_, _, err := stage.ByName[kind].Take(s.Locks, bounded(t, c.deadline), "orders")
				require.Equal(t, c.end, time.Since(began))
				isRefusedOnly(t, err, "orders", c.why)
			}, redlatch.WithWaitTimeout(waitTimeout))
		})
	}
}

func TestTheEarlierOfNestedWaitDeadlinesCounts(t *testing.T) {
	for name, c := range map[string][2]time.Duration{"the outer": {time.Second, 3 * time.Second}, "the inner": {3 * time.Second, time.Second}} {
		t.Run(name, func(t *testing.T) {
			inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
				defer s.Taken(t, kind, "orders")()
				began := time.Now()
				ctx := redlatch.WithWaitDeadline(bounded(t, c[0]), began.Add(c[1]))
				_, _, err := stage.ByName[kind].Take(s.Locks, ctx, "orders")
				require.Equal(t, time.Second, time.Since(began))
				isRefusedOnly(t, err, "orders", atTheDeadline)
			})
		})
	}
}

func TestAWaitDeadlineOfTheZeroTimeIsNone(t *testing.T) {
	var none context.Context
	require.PanicsWithValue(t, panicOf(func() { _ = context.WithValue(none, t, 1) }), func() { redlatch.WithWaitDeadline(none, time.Now()) })
	inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
		_, release, err := stage.ByName[kind].Take(s.Other, t.Context(), "orders")
		require.NoError(t, err)
		request := redlatch.WithWaitDeadline(t.Context(), time.Now().Add(time.Second))
		later := redlatch.WithWaitDeadline(context.WithoutCancel(request), time.Time{})
		time.AfterFunc(time.Minute, func() { require.NoError(t, release(t.Context())) })
		_, _, err = stage.ByName[kind].Take(s.Locks, request, "orders")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		_, release, err = stage.ByName[kind].Take(s.Locks, redlatch.WithWaitDeadline(later, time.Now().Add(time.Hour)), "orders")
		require.NoError(t, err, "it waits for longer than the request")
		require.NoError(t, release(later))
	})
}

func panicOf(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

// The rest of the time never becomes "for ever", and never so short that a free lock cannot be
// acquired.
func TestAfterTheWaitDeadlineACallAsksOnce(t *testing.T) {
	rests := map[string]time.Duration{"over": -time.Hour, "now": 0, "less than a millisecond ahead": 999 * time.Microsecond}
	for rest, in := range rests {
		t.Run(rest, func(t *testing.T) {
			t.Run("the lock is free", func(t *testing.T) {
				inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
					s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Times: 1, Action: redistest.DelayRequest(900 * time.Millisecond)})
					ctx := bounded(t, in)
					_, release, err := stage.ByName[kind].Take(s.Locks, ctx, "orders")
					require.NoError(t, err)
					require.NoError(t, release(ctx))
				})
			})
			for holder, client := range map[string]func(*stage.Observed) *redlatch.Client{
				"another client": func(s *stage.Observed) *redlatch.Client { return s.Other },
				"this client":    func(s *stage.Observed) *redlatch.Client { return s.Locks },
			} {
				t.Run(holder+" has the lock", func(t *testing.T) {
					inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
						require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { return nil }), "it knows the server's clock now")
						h, release, err := stage.ByName[kind].Take(client(s), t.Context(), "orders")
						require.NoError(t, err)
						ctx := bounded(t, in)
						ask := s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Action: redistest.DelayRequest(0)})
						began := time.Now()
						_, _, err = stage.ByName[kind].Take(s.Locks, ctx, "orders")
						require.Zero(t, time.Since(began))
						isRefusedOnly(t, err, "orders", deadlineWasOver)
						require.Equal(t, 1, ask.Bites())
						if kind != "semaphore" {
							var busy *lockerr.NotAcquiredError
							require.ErrorAs(t, err, &busy)
							require.Equal(t, h.(interface{ ID() string }).ID(), busy.Holder)
						}
						ends := s.Of(event.WaitEnded)
						require.Equal(t, event.Busy, ends[len(ends)-1].Result)
						require.NoError(t, release(t.Context()))
					})
				})
			}
			for outage, kindOf := range map[string]error{"down": redlatch.ErrUnavailable, "silent": redlatch.ErrIndeterminate} {
				t.Run("redis is "+outage, func(t *testing.T) {
					inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
						ctx := bounded(t, in)
						stage.Outages[outage](s)
						began := time.Now()
						_, _, err := stage.ByName[kind].Take(s.Locks, ctx, "orders")
						require.Equal(t, time.Second, time.Since(began))
						require.ErrorIs(t, err, kindOf)
						require.ErrorContains(t, err, lateGaveUp)
						require.NotErrorIs(t, err, context.DeadlineExceeded)
						s.Proxy.Up()
						s.Proxy.Heal()
					})
				})
			}
		})
	}
}

// A wait timeout below a second counts for it too.
func TestAfterTheWaitDeadlineTheWaitTimeoutCountsToo(t *testing.T) {
	inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
		s.Proxy.Down()
		defer s.Proxy.Up()
		began := time.Now()
		_, _, err := stage.ByName[kind].Take(s.Locks, bounded(t, -time.Second), "orders")
		require.Equal(t, 300*time.Millisecond, time.Since(began))
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "gave up after 300ms (WithWaitTimeout)")
	}, redlatch.WithWaitTimeout(300*time.Millisecond))
}

func TestAWaitDeadlineEndsTheWaitForRedis(t *testing.T) {
	for outage, kindOf := range map[string]error{"down": redlatch.ErrUnavailable, "silent": redlatch.ErrIndeterminate} {
		t.Run(outage, func(t *testing.T) {
			inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
				stage.Outages[outage](s)
				began := time.Now()
				_, _, err := stage.ByName[kind].Take(s.Locks, bounded(t, 7*time.Second), "orders")
				require.Equal(t, 7*time.Second, time.Since(began))
				require.ErrorIs(t, err, kindOf)
				require.ErrorContains(t, err, atTheDeadline)
				s.Proxy.Up()
				s.Proxy.Heal()
			})
		})
	}
}

func TestAWaitDeadlineFailsNoReentry(t *testing.T) {
	for kind, locker := range lockers {
		for name, in := range map[string]time.Duration{"it is over": -time.Second, "it comes before the answer": 10 * time.Millisecond, "it is far": time.Hour} {
			t.Run(kind+", "+name, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					h, err := locker(s.Locks, "orders").Lock(t.Context())
					require.NoError(t, err)
					s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayRequest(900 * time.Millisecond)})
					began := time.Now()
					again, err := locker(s.Locks, "orders").Lock(redlatch.WithWaitDeadline(h.Context(), began.Add(in)))
					require.NoError(t, err)
					require.Equal(t, 900*time.Millisecond, time.Since(began), "the answer was late")
					require.Equal(t, h.ID(), again.ID())
					require.NoError(t, again.Unlock(t.Context()))
					require.NoError(t, h.Unlock(t.Context()))
				})
			})
		}
	}
}

// A re-entry waits for Redis, as with a wait timeout.
func TestAWaitDeadlineBoundsAReentryInAnOutage(t *testing.T) {
	for kind, locker := range lockers {
		for name, c := range map[string]struct {
			timeout, deadline, end time.Duration
			why                    string
		}{
			"over":                {0, -time.Second, time.Second, lateGaveUp},
			"within a second":     {0, 10 * time.Millisecond, time.Second, lateGaveUp},
			"later":               {0, 3 * time.Second, 3 * time.Second, atTheDeadline},
			"with a brief limit":  {300 * time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, "(WithWaitTimeout)"},
			"with a longer limit": {waitTimeout, 10 * time.Millisecond, time.Second, lateGaveUp},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					h, err := locker(s.Locks, "orders").Lock(t.Context())
					require.NoError(t, err)
					s.Proxy.BlackHole(redistest.CommandTraffic)
					began := time.Now()
					_, err = locker(s.Locks, "orders").Lock(redlatch.WithWaitDeadline(h.Context(), began.Add(c.deadline)))
					require.Equal(t, c.end, time.Since(began))
					require.ErrorIs(t, err, redlatch.ErrIndeterminate)
					require.ErrorContains(t, err, c.why)
					s.Proxy.Heal()
					require.NoError(t, h.Unlock(t.Context()))
				}, redlatch.WithWaitTimeout(c.timeout))
			})
		}
	}
}

func TestAWaitDeadlineBoundsTheWaitOnly(t *testing.T) {
	inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
		ctx := redlatch.WithWaitDeadline(t.Context(), time.Now().Add(waitTimeout))
		_, has := ctx.Deadline()
		require.False(t, has)
		h, release, err := stage.ByName[kind].Take(s.Locks, ctx, "orders")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, h.Context().Err())
		require.NoError(t, release(ctx))

		ctx = redlatch.WithWaitDeadline(t.Context(), time.Now().Add(waitTimeout))
		require.NoError(t, stage.ByName[kind].Do(s.Locks, ctx, "orders", func(ctx context.Context) error {
			time.Sleep(time.Hour)
			_, has := ctx.Deadline()
			require.False(t, has)
			return ctx.Err()
		}))
		s.Taken(t, kind, "orders")()
	})
}

// A try does not wait for the lock. How long it waits for Redis is as without a wait deadline.
func TestATryDoesNotLookAtTheWaitDeadline(t *testing.T) {
	for _, in := range []time.Duration{-time.Second, waitTimeout, time.Hour} {
		for primitive, try := range stage.TryCalls {
			t.Run(stage.Primitives[primitive]+", "+in.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					s.Proxy.Down()
					began := time.Now()
					err := try(s.Locks, bounded(t, in))
					require.Equal(t, 5*time.Second, time.Since(began))
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
					require.NotContains(t, err.Error(), "WithWaitDeadline")
					s.Proxy.Up()
					_, release, err := stage.ByName[stage.Primitives[primitive]].Take(s.Locks, t.Context(), "orders")
					require.NoError(t, err)
					err = try(s.Locks, bounded(t, in))
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					require.NotContains(t, err.Error(), "WithWaitDeadline")
					require.NoError(t, release(t.Context()))
				})
			})
		}
	}
}

func TestAnUnlockDoesNotLookAtTheWaitDeadline(t *testing.T) {
	inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
		ctx := bounded(t, -time.Second)
		_, release, err := stage.ByName[kind].Take(s.Locks, ctx, "orders")
		require.NoError(t, err)
		s.Proxy.Down()
		began := time.Now()
		time.AfterFunc(5*time.Second, s.Proxy.Up)
		require.NoError(t, release(ctx))
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	})
}

// Each level waits for its release until the wait deadline, and 100 ms in any case. Without the
// wait deadline, each would wait for two seconds.
func TestNestedDosInAnOutageReturnByTheWaitDeadline(t *testing.T) {
	const level = 100 * time.Millisecond
	names := map[string][3]string{"three locks": {"orders", "accounts", "stock"}, "re-entries": {"orders", "orders", "orders"}}
	for outage, begin := range stage.Outages {
		for locks, names := range names {
			for end, c := range map[string]struct{ in, least, most time.Duration }{
				"the deadline is ahead": {500 * time.Millisecond, 500 * time.Millisecond, 500*time.Millisecond + 3*level},
				"the deadline is over":  {-time.Second, level, 3 * level},
				"the deadline is far":   {time.Hour, stage.TimeOfOneCommand / 2, 3 * stage.TimeOfOneCommand},
			} {
				for _, cancels := range []bool{false, true} {
					name := locks + ", redis is " + outage + ", " + end
					if cancels {
						name += ", the request is cancelled"
					}
					t.Run(name, func(t *testing.T) {
						inDeadlineBubbles(t, func(t *testing.T, s *stage.Observed, kind string) {
							if kind == "semaphore" && locks == "re-entries" {
								t.Skip("a semaphore has none")
							}
							ctx, cancel := context.WithCancel(bounded(t, c.in))
							defer cancel()
							do, began := stage.ByName[kind].Do, time.Time{}
							err := do(s.Locks, ctx, names[0], func(ctx context.Context) error {
								return do(s.Locks, ctx, names[1], func(ctx context.Context) error {
									return do(s.Locks, ctx, names[2], func(context.Context) error {
										began = time.Now()
										begin(s)
										if cancels {
											cancel()
										}
										return nil
									})
								})
							})
							require.NoError(t, err)
							require.LessOrEqual(t, time.Since(began), c.most)
							require.GreaterOrEqual(t, time.Since(began), c.least)
							s.Proxy.Up()
							s.Proxy.Heal()
							back := time.Now()
							for _, name := range names {
								s.Taken(t, kind, name)()
							}
							require.Less(t, time.Since(back), 5*time.Second, "the client goes on with the release, and the lease is not waited for")
						})
					})
				}
			}
		}
	}
}

// A call that waits may become a re-entry, because its chain gets the lock meanwhile. It then has
// as much time as any other re-entry.
func TestAWaitThatBecomesAReentryHasItsTime(t *testing.T) {
	for kind, locker := range lockers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				free := s.Taken(t, kind, "orders")
				chain := redlatch.WithOwner(t.Context())
				until := time.Now().Add(2 * time.Second)
				first := make(chan *redlatch.Hold, 1)
				go func() { h, _ := locker(s.Locks, "orders").Lock(chain); first <- h }()
				synctest.Wait()
				again := make(chan error, 1)
				go func() {
					h, err := locker(s.Locks, "orders").Lock(redlatch.WithWaitDeadline(chain, until))
					if err == nil {
						err = h.Unlock(chain)
					}
					again <- err
				}()
				synctest.Wait()
				time.Sleep(1900 * time.Millisecond)
				free()
				h := <-first
				s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayRequest(500 * time.Millisecond)})
				require.NoError(t, <-again)
				require.NoError(t, h.Unlock(t.Context()))
			})
		})
	}
}

// While a call after the wait deadline asks Redis, its chain gets the lock by another call. So the
// call re-enters.
func TestALateCallReentersALockThatItsChainGets(t *testing.T) {
	for kind, locker := range lockers {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				chain := redlatch.WithOwner(t.Context())
				s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Times: 1, Action: redistest.DelayRequest(500 * time.Millisecond)})
				late := make(chan error, 1)
				go func() {
					h, err := locker(s.Locks, "orders").Lock(redlatch.WithWaitDeadline(chain, time.Now()))
					if err == nil {
						err = h.Unlock(chain)
					}
					late <- err
				}()
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				h, err := locker(s.Locks, "orders").TryLock(chain)
				if kind == "mutex" && err != nil { // calls of one client for a plain mutex are made one after the other
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					require.NoError(t, <-late)
					return
				}
				require.NoError(t, err)
				require.NoError(t, <-late)
				require.NoError(t, h.Unlock(t.Context()))
			})
		})
	}
}
