package fair_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// Goroutines that lock the plain mutex all the time do not keep a fair waiter from the lock. It is
// next after the time in which a client may hand the lock on.
func TestPlainLockersDoNotGetAheadOfAFairQueue(t *testing.T) {
	t.Parallel()
	const perClient = 10 // grants of a millisecond, in WithLocalHandoffTime by default
	cases := map[string]struct{ others, goroutines, bound int }{
		"another client, one goroutine":   {1, 1, 1},
		"another client, some goroutines": {1, 4, perClient},
		"several clients":                 {3, 2, perClient},
		"the waiter's own client":         {0, 4, perClient},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				waiter := s.Actor()
				var counts []*atomic.Int64
				var stops []func()
				for range max(c.others, 1) {
					a := waiter
					if c.others > 0 {
						a = s.Actor()
					}
					turns, stop := a.Loop("door", c.goroutines)
					counts, stops = append(counts, turns), append(stops, stop)
				}
				taken := func() (n int) {
					for _, turns := range counts {
						n += int(turns.Load())
					}
					return n
				}
				time.Sleep(50 * time.Millisecond)
				for range 20 {
					before := taken()
					w := waiter.BeginFair(waiter.Ctx, "door")
					h := w.Got()
					require.LessOrEqual(t, taken()-before, c.bound)
					s.Unlock(h)
					time.Sleep(7 * time.Millisecond)
				}
				for _, stop := range stops {
					stop()
				}
				require.Greater(t, taken(), 20, "the plain ones have their turns too")
				s.NothingRemains()
			})
		})
	}
}

// In each way in which a plain mutex becomes free, the first waiter of the queue gets the lock as
// soon as a client learns that the lock is free, or may be.
func TestWhateverFreesAPlainMutexServesTheQueue(t *testing.T) {
	t.Parallel()
	// onFirst calls act when the first reply to a script has come. The caller gets its error.
	onFirst := func(a *stage.Actor, script string, act func() error) {
		var came atomic.Bool
		a.Redis.AddHook(&stage.DoubtfulHook{Script: script, Say: func() error {
			if came.Swap(true) {
				return nil
			}
			return act()
		}})
	}
	lose := func() error { return io.ErrUnexpectedEOF }
	ways := map[string]func(s *stage.Stage, a *stage.Actor, h *lock.Hold){
		"unlock": func(s *stage.Stage, _ *stage.Actor, h *lock.Hold) { s.Unlock(h) },
		"unlock whose reply is lost": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			onFirst(a, "mutex/release", lose)
			s.Unlock(h)
		},
		"unlock whose reply is lost, and whose context ends before the retry": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			ctx, cancel := context.WithCancel(s.Context())
			onFirst(a, "mutex/release", func() error { cancel(); return lose() })
			require.ErrorIs(s, h.Unlock(ctx), redlatch.ErrIndeterminate)
		},
		"unlock whose reply comes after the end of its context": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			onFirst(a, "mutex/release", func() error { time.Sleep(300 * time.Millisecond); return nil })
			ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
			defer cancel()
			require.ErrorIs(s, h.Unlock(ctx), redlatch.ErrIndeterminate)
		},
		"unlock whose reply comes when its context ends": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			ctx, cancel := context.WithCancel(s.Context())
			onFirst(a, "mutex/release", func() error { cancel(); return nil })
			if err := h.Unlock(ctx); err != nil {
				require.ErrorIs(s, err, redlatch.ErrIndeterminate)
			}
		},
		"close whose reply is lost": func(s *stage.Stage, a *stage.Actor, _ *lock.Hold) {
			onFirst(a, "mutex/release", lose)
			require.NoError(s, a.Close(s.Context()))
		},
		"force release whose reply is lost": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			onFirst(a, "mutex/force_release", lose)
			_, err := a.Mutex("door").ForceRelease(s.Context(), h.ID())
			require.ErrorIs(s, err, redlatch.ErrIndeterminate)
		},
		"force release whose reply is lost, and whose context ends before the retry": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			ctx, cancel := context.WithCancel(s.Context())
			onFirst(a, "mutex/force_release", func() error { cancel(); return lose() })
			_, err := a.Mutex("door").ForceRelease(ctx, h.ID())
			require.ErrorIs(s, err, redlatch.ErrIndeterminate)
		},
		"close": func(s *stage.Stage, a *stage.Actor, _ *lock.Hold) { a.End() },
		"force release": func(s *stage.Stage, _ *stage.Actor, h *lock.Hold) {
			victim, err := s.Actor().Mutex("door").ForceRelease(s.Context(), "")
			require.NoError(s, err)
			require.Equal(s, h.ID(), victim)
		},
		"a key that was deleted, and a TryLock": func(s *stage.Stage, _ *stage.Actor, _ *lock.Hold) {
			require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
			_, err := s.Actor().Mutex("door").TryLock(s.Context())
			var refused *redlatch.NotAcquiredError
			require.ErrorAs(s, err, &refused)
			require.NotEmpty(s, refused.Holder, "the waiter has it now")
		},
		"a key that was deleted, and a Lock": func(s *stage.Stage, _ *stage.Actor, _ *lock.Hold) {
			require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
			ctx, cancel := context.WithTimeout(s.Context(), time.Millisecond)
			defer cancel()
			_, err := s.Actor().Mutex("door").Lock(ctx)
			require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		},
	}
	for name, free := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a, b := s.Actor(), s.Actor()
				a.ByWorkers()
				h := a.Lock("door")
				w := b.BeginFair(b.Ctx, "door")
				s.Queued("door", 1)
				synctest.Wait() // its first heartbeat has found the lock taken
				free(s, a, h)
				learned := time.Now() // that it is free, or may be
				next := w.Got()
				require.LessOrEqual(t, w.At.Sub(learned), 10*time.Millisecond, "a retry, and no heartbeat")
				s.Unlock(next)
				_ = h.Unlock(s.Context()) // closed, lost, or unlocked
				s.NothingRemains()
			})
		})
	}
}

// All waiters of the queue have crashed. They delay plain waiters for at most two heartbeats, the
// second because the server may have stood still. Their places are gone at the end.
func TestCrashedFairWaitersDelayPlainOnesByTwoHeartbeats(t *testing.T) {
	t.Parallel()
	for _, try := range []bool{false, true} {
		stage.InVirtualTime(t, func(s *stage.Stage) {
			holder, a := s.Actor(), s.Actor()
			h := holder.Lock("door")
			for range 3 {
				dead := s.Actor()
				s.Line("door", 1, dead)
				dead.Die()
			}
			died := time.Now()
			s.Unlock(h)
			for {
				if next, err := a.Mutex("door").TryLock(a.Ctx); err == nil {
					s.Unlock(next)
					break
				}
				if !try {
					s.Unlock(a.Lock("door"))
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(died), 2*stage.Heartbeat+100*time.Millisecond)
			synctest.Wait()
			s.NothingRemains()
		})
	}
}

// A plain waiter gets no message when the lock goes to a fair waiter, so it does not notice that
// this one has crashed. It asks at its poll, even if the heartbeats of the crashed waiters are far
// shorter.
func TestAPlainWaiterFindsExpiredFairOnesAtItsPoll(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const short, poll = 100 * time.Millisecond, 20 * time.Second
		holder, a := s.Actor(), s.Actor(redlatch.WithPollInterval(poll))
		h := holder.Lock("door")
		waits := a.Begin(a.Ctx, "door").Asked(2)
		for range 3 {
			dead := s.Actor(redlatch.WithHeartbeat(short))
			s.Line("door", 1, dead)
			dead.Die()
		}
		died := time.Now()
		s.Unlock(h)
		next := waits.Got()
		require.LessOrEqual(s, waits.At.Sub(died), poll+2*short)
		s.Unlock(next)
		s.NothingRemains()
	})
}

// Redis cannot serve this queue (its fence cannot be counted up, or its heartbeats are of another
// type). A plain Lock does not ask without a pause because of that.
func TestAQueueThatCannotBeServedIsNotAskedWithoutPause(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		require.NoError(t, s.Admin.ZAdd(s.Context(), "redlatch:queue:{door}", redis.Z{Score: 1, Member: "x:1 1 3600000 3600000"}).Err())
		require.NoError(t, s.Admin.Set(s.Context(), "redlatch:alive:{door}", "x", 0).Err())
		ctx, cancel := context.WithTimeout(a.Ctx, 10*time.Second)
		defer cancel()
		before := a.Scripts.Load()
		_, err := a.Mutex("door").Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Less(t, a.Scripts.Load()-before, int64(300))
		require.NoError(t, s.Admin.Del(s.Context(), "redlatch:queue:{door}", "redlatch:alive:{door}").Err())
	})
}

// Redisson, and everything else that writes the key by itself, does not know the queue. If the
// message of its release is lost, the waiters find it by their heartbeats.
func TestAFairWaiterFindsTheReleaseOfAClientThatKnowsNoQueue(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		ctx := s.Context()
		take := func() { require.NoError(t, s.Admin.HSet(ctx, "door", "5c0f:1", 1).Err()) }
		give := func() { require.NoError(t, s.Admin.Del(ctx, "door").Err()) } // its message is lost
		take()
		w := a.BeginFair(a.Ctx, "door")
		s.Queued("door", 1)
		for range 10 {
			give()
			take()
		}
		require.True(t, w.Pending(), "it gets ahead of the queue")
		give()
		freed := time.Now()
		h := w.Got()
		require.LessOrEqual(t, w.At.Sub(freed), stage.Heartbeat/2)
		s.Unlock(h)
		s.NothingRemains()
	})
}
