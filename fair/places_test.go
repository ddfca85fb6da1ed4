package fair_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: the promises of a queue beyond those of every lock.

// LockFair waits for a fair mutex.

// A hold lasts ten hours in make verify, and one hour elsewhere. A hundred waiters live, none of
// them is dropped, and the order is that of their arrival. They cost heartbeats in batches.
func TestFairWaitersOutlastTenHours(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		long := time.Duration(redistest.Rounds(1, 10)) * time.Hour
		// Rare heartbeats, so that the embedded server handles them soon.
		slow := redlatch.WithHeartbeat(long / 10)
		holder, a, b, c := s.Actor(), s.Actor(slow), s.Actor(slow), s.Actor(slow)
		h := holder.LockFair("door")
		all := s.Line("door", 100, a, b, c)
		// Every ten seconds they check whether their own client has the lock. At such an instant it
		// may have it, because others get the lock at that instant.
		time.Sleep(long + 5*time.Second)
		for _, w := range all {
			require.True(s, w.Pending())
		}
		s.Unlock(h)
		s.Served(all)
		s.NothingRemains()
		for _, x := range []*stage.Actor{holder, a, b, c} {
			require.Empty(s, x.Log.Lines())
			require.Zero(s, stage.NamesInUse(x.Client))
			require.Zero(s, stage.FairWaiting(x.Client))
		}
	})
}

// Up to a thousand waiters of one client wait for an hour. A hundred of them cost one heartbeat
// command in each third of the heartbeat, and a few more because batches split by chance, and
// nothing else.
func TestAThousandWaitersCostTheirHeartbeats(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const slow = time.Hour // each heartbeat is sent three times in it
		waiters := int64(redistest.Rounds(300, 1000))
		holder, a := s.Actor(), s.Actor(redlatch.WithHeartbeat(slow), redlatch.WithLease(slow))
		h := holder.LockFair("door")
		ctx, cancel := context.WithCancel(a.Ctx)
		var all []*stage.Asking
		for range waiters {
			all = append(all, a.BeginFair(ctx, "door"))
		}
		s.Queued("door", waiters)
		time.Sleep(slow / 3)
		before := a.Scripts.Load()
		time.Sleep(time.Hour)
		rounds := int64(time.Hour / (slow / 3))
		beats := a.Scripts.Load() - before
		require.Greater(s, beats, rounds*waiters/100*9/10)
		require.Less(s, beats, rounds*waiters/100*5/2, "batches, and nothing more")
		cancel()
		for _, w := range all {
			require.ErrorIs(s, w.Failed(), context.Canceled)
		}
		s.Queued("door", 0)
		s.Unlock(h)
		s.NothingRemains()
	})
}

// Five hundred waiters crash at once. The next live waiter has the lock within one heartbeat of the
// crash, for any number of crashed waiters.
func TestTheCrashedDelayTheQueueByOneHeartbeatInAll(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, victims, a := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		for range 500 {
			victims.BeginFair(victims.Ctx, "door")
		}
		s.Queued("door", 500)
		next := s.Line("door", 3, a)
		victims.Die()
		died := time.Now()
		time.Sleep(time.Second)
		s.Unlock(h)
		s.Served(next)
		require.LessOrEqual(s, next[0].At.Sub(died), stage.Heartbeat+10*time.Millisecond)
		s.NothingRemains()
	})
}

// All waiters of a long queue have crashed. Nevertheless a plain waiter is notified of the release,
// and does not wait for its poll.
func TestAPlainWaiterBehindVeryManyExpiredIsNotified(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(s *stage.Stage, a *stage.Actor, h *lock.Hold){
		"unlock": func(s *stage.Stage, _ *stage.Actor, h *lock.Hold) { s.Unlock(h) },
		"force release": func(s *stage.Stage, a *stage.Actor, h *lock.Hold) {
			victim, err := a.FairMutex("door").ForceRelease(a.Ctx, "")
			require.NoError(s, err)
			require.Equal(s, h.ID(), victim)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				holder, a := s.Actor(), s.Actor()
				h := holder.LockFair("door")
				w := a.Begin(a.Ctx, "door").Asked(2)
				had := redis.Z{Score: float64(time.Now().UnixMilli() - 1), Member: "grace"}
				dead := make([]redis.Z, 2500)
				for i := range dead {
					dead[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("dead:%d 1 3600000 3600000", i)}
				}
				require.NoError(s, s.Admin.ZAdd(s.Context(), "redlatch:queue:{door}", dead...).Err())
				require.NoError(s, s.Admin.ZAdd(s.Context(), "redlatch:alive:{door}", append(dead, had)...).Err())
				free(s, holder, h)
				freed := time.Now()
				next := w.Got()
				require.Zero(s, w.At.Sub(freed))
				s.Unlock(next)
				if name != "unlock" {
					require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
				}
				s.NothingRemains()
			})
		})
	}
}

// If a waiter crashes between its grant and taking it over, it costs the rest of its heartbeat.
func TestAWaiterThatDiesWithTheGrantCostsAHeartbeat(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, victim, a := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		s.Line("door", 1, victim)
		next := s.Line("door", 1, a)
		victim.Die()
		s.Unlock(h)
		granted := time.Now()
		require.NotZero(s, s.Admin.Exists(s.Context(), "door").Val(), "the dead one has it")
		s.Served(next)
		require.LessOrEqual(s, next[0].At.Sub(granted), stage.Heartbeat+10*time.Millisecond)
		s.NothingRemains()
	})
}

// It does not cost more than its lease, if that is shorter than the heartbeat. The next heartbeat
// of the others finds when the lease ends, or that it has ended.
func TestAWaiterThatDiesWithTheGrantCostsItsLeaseAtMost(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const lease = 500 * time.Millisecond
		holder, victim, a := s.Actor(), s.Actor(redlatch.WithLease(lease)), s.Actor()
		h := holder.LockFair("door")
		s.Line("door", 1, victim)
		next := s.Line("door", 1, a)
		victim.Die()
		s.Unlock(h)
		granted := time.Now()
		require.NotZero(s, s.Admin.Exists(s.Context(), "door").Val(), "the dead one has it")
		s.Served(next)
		require.LessOrEqual(s, next[0].At.Sub(granted), max(lease, stage.Heartbeat/3+stage.Heartbeat/10))
		s.NothingRemains()
	})
}

// The lease of a crashed holder ends, and the next waiter gets the lock at that moment. It asks by
// itself, and does not wait for a heartbeat.
func TestTheNextAfterACrashedHolderGetsTheLockAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(redlatch.WithLease(30*time.Second)), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		all := s.Line("door", 4, a, b)
		time.Sleep(time.Minute) // the lease is renewed
		holder.Die()
		left := s.Admin.PTTL(s.Context(), "door").Val()
		died := time.Now()
		s.Served(all)
		require.InDelta(s, float64(left), float64(all[0].At.Sub(died)), float64(50*time.Millisecond))
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.NothingRemains()
	})
}

// The first waiter of a client gives up shortly before the lease of a crashed holder ends. Now the
// second one asks at that moment, and does not wait for a heartbeat.
func TestTheSecondWaiterOfAClientAsksAtTheEndOfTheLeaseIfTheFirstGivesUp(t *testing.T) {
	t.Parallel()
	for _, before := range []time.Duration{time.Second, 10 * time.Second} {
		stage.InVirtualTime(t, func(s *stage.Stage) {
			holder, a := s.Actor(redlatch.WithLease(30*time.Second)), s.Actor(redlatch.WithHeartbeat(time.Minute))
			h := holder.LockFair("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			defer cancel()
			first := a.BeginFair(ctx, "door")
			s.Queued("door", 1)
			second := a.BeginFair(a.Ctx, "door")
			s.Queued("door", 2)
			time.Sleep(time.Minute)
			holder.Die()
			end := time.Now().Add(s.Admin.PTTL(s.Context(), "door").Val())
			time.Sleep(time.Until(end) - before)
			cancel()
			require.ErrorIs(s, first.Failed(), context.Canceled)
			s.Unlock(second.Got())
			require.WithinDuration(s, end, second.At, 50*time.Millisecond)
			require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
			s.NothingRemains()
		})
	}
}

// The server answers nobody for a minute, which is twelve heartbeats. Redis drops no waiter because
// of that, and the order stays.
func TestAServerThatStandsStillLosesNobody(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b, c := s.Actor(), s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		all := s.Line("door", 30, a, b, c)
		places := func() []string { return s.Admin.ZRange(s.Context(), "redlatch:queue:{door}", 0, -1).Val() }
		before := places()
		for range 3 {
			for _, x := range []*stage.Actor{a, b, c} {
				x.Net.Dead.Store(true)
				x.Net.Cut(func(*stage.Wire) bool { return true })
			}
			time.Sleep(time.Minute)
			for _, x := range []*stage.Actor{a, b, c} {
				x.Net.Dead.Store(false)
			}
			time.Sleep(time.Minute)
			require.Equal(s, before, places(), "nobody was dropped, and had to queue again")
		}
		s.Unlock(h)
		s.Served(all)
		s.NothingRemains()
	})
}

// The server loses everything. All waiters queue again, with their old tickets, and are notified of
// that. The order is the same as before.
func TestAQueueThatTheServerLostComesBackInOrder(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		var mu sync.Mutex
		again := map[int]bool{}
		var all []*stage.Asking
		for i := range 20 {
			x := []*stage.Actor{a, b}[i%2]
			all = append(all, x.BeginFair(x.Ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
				mu.Lock()
				defer mu.Unlock()
				again[i] = again[i] || w.Requeued
			})))
			s.Queued("door", int64(i+1))
		}
		time.Sleep(time.Minute)
		require.NoError(s, s.Admin.Do(s.Context(), "FLUSHALL").Err())
		// Another client gets the lock first. The queue comes back behind it.
		other := s.Actor().LockFair("door")
		s.Receive(h.Lost(), "the holder is notified")
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.Queued("door", 20)
		mu.Lock()
		require.Len(s, again, 20)
		for i, requeued := range again {
			require.True(s, requeued, "waiter %d was not notified", i)
		}
		mu.Unlock()
		s.Unlock(other)
		s.Served(all)
		s.NothingRemains()
	})
}

// Without pub/sub, the waiter finds its grant at its next heartbeat.
func TestAGrantWhoseMessageIsLostComesWithAHeartbeat(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		deaf := a.BeginFair(a.Ctx, "door")
		s.Queued("door", 1)
		time.Sleep(time.Minute)
		a.Net.BlackHole((*stage.Wire).Subscribes)
		s.Unlock(h)
		freed := time.Now()
		h = deaf.Got()
		require.LessOrEqual(s, deaf.At.Sub(freed), stage.Heartbeat/3)
		require.Greater(s, deaf.At.Sub(freed), time.Duration(0), "the message was not lost")
		require.True(s, h.Trusted())
		s.Unlock(h)
		s.NothingRemains()
	})
}

// A message is only a hint, and anybody may publish it. The waiter asks Redis and goes on waiting.
// It does not ask without a pause.
func TestAHintThatIsNotTrueIsAskedForOnce(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		w := s.Line("door", 1, a)[0]
		channel, id := s.HintTo(holder)
		time.Sleep(time.Second)
		s.Settle()
		before := a.Scripts.Load()
		s.Sim.Publish(channel, id)
		s.Settle()
		require.EqualValues(s, 1, a.Scripts.Load()-before)
		require.True(s, w.Pending())
		s.Unlock(h)
		s.Unlock(w.Got())
		s.NothingRemains()
	})
}

// A flood of messages on the channel does not make the waiter flood Redis. The waiter still gets
// the true message among them, and gets it immediately after a quiet time.
func TestForgedHintsAreBounded(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const flood = 20 * time.Second
		holder, a := s.Actor(), s.Actor()
		for _, quiet := range []time.Duration{0, 3 * time.Second} {
			h := holder.LockFair("door")
			w := s.Line("door", 1, a)[0]
			channel, id := s.HintTo(holder)
			before := a.Scripts.Load()
			for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
				s.Sim.Publish(channel, id)
			}
			asked := a.Scripts.Load() - before
			beats := int64(flood/(stage.Heartbeat/3)) + 1
			require.LessOrEqual(s, asked, int64(flood/(100*time.Millisecond))+20+beats, "once each 100 ms, after a few")
			require.Greater(s, asked, 50+beats, "they are served")
			time.Sleep(quiet)
			freed := time.Now()
			s.Unlock(h)
			s.Unlock(w.Got())
			if quiet == 0 {
				require.LessOrEqual(s, w.At.Sub(freed), 100*time.Millisecond)
			} else {
				require.Zero(s, w.At.Sub(freed))
			}
		}
		s.NothingRemains()
	})
}

// Anybody may publish to the channel of the lock too.
func TestForgedReleasesAreBounded(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const flood = 20 * time.Second
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		w := s.Line("door", 1, a)[0]
		before := a.Scripts.Load()
		for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
			s.Sim.Publish("redisson_lock__channel:{door}", "0")
		}
		asked := a.Scripts.Load() - before
		beats := int64(flood/(stage.Heartbeat/3)) + 1
		require.LessOrEqual(s, asked, int64(flood/(100*time.Millisecond))+20+beats, "once each 100 ms, after a few")
		require.Greater(s, asked, 50+beats, "they are served")
		s.Unlock(h)
		s.Unlock(w.Got())
		s.NothingRemains()
	})
}

// A message may overtake the answer to the join. The waiter acts on it when the answer has come.
func TestAHintBeforeTheAnswerOfTheJoinIsHeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		a, b := stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client())
		elsewhere, h := mustLockFair(t, a, "elsewhere"), mustLockFair(t, a, "door")
		waits := make(chan *lock.Hold)
		go func() { waits <- mustLockFair(t, b, "elsewhere") }() // b listens from now on
		time.Sleep(time.Second)
		const late = 500 * time.Millisecond
		isJoin := func(cmd []string) bool { return lua.ScriptName(cmd) == "fair/join" }
		join := v.Inject(redistest.Rule{Match: isJoin, Times: 1, Action: redistest.DelayReply(late)})
		asked := time.Now()
		got := make(chan *lock.Hold)
		go func() { got <- mustLockFair(t, b, "door") }()
		join.Await(1)
		require.NoError(t, h.Unlock(t.Context()))
		h = <-got
		require.Equal(t, late, time.Since(asked), "neither before it, nor by a beat")
		require.True(t, h.Trusted())
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, elsewhere.Unlock(t.Context()))
		require.NoError(t, (<-waits).Unlock(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

func mustLockFair(t *testing.T, c *redlatch.Client, name string) *lock.Hold {
	t.Helper()
	h, err := c.FairMutex(name).Lock(t.Context())
	require.NoError(t, err)
	return h
}

// Between processes, a hand-over costs two round trips: the one command of the release, and the one
// command of the notified waiter. The waiter has the whole lease then.
func TestAHandOverCostsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		w := a.BeginFair(a.Ctx, "door")
		s.Queued("door", 1)
		time.Sleep(time.Second)
		s.Settle()
		byHolder, byNext := holder.Scripts.Load(), a.Scripts.Load()
		unlocked := time.Now()
		s.Unlock(h)
		h = w.Got()
		require.Equal(s, unlocked, w.At)
		require.EqualValues(s, 1, holder.Scripts.Load()-byHolder)
		require.EqualValues(s, 1, a.Scripts.Load()-byNext)
		require.Greater(s, s.Admin.PTTL(s.Context(), "door").Val(), stage.Faraway-time.Second, "the whole lease")
		require.Greater(s, time.Until(h.TrustedUntil()), stage.Faraway-2*time.Second)
		time.Sleep(10 * time.Millisecond)
		s.Unlock(h)
		s.Settle()
		require.EqualValues(s, 2, a.Scripts.Load()-byNext, "and nothing is renewed")
		s.NothingRemains()
	})
}

// A waiter tries to re-enter when its chain gets the lock by another call. If that call has
// released the lock by then, the waiter has kept its place, and is the next.
func TestWhoCannotEnterAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for range 20 {
		stage.InVirtualTime(t, func(s *stage.Stage) {
			holder, a, b := s.Actor(), s.Actor(), s.Actor()
			h := holder.LockFair("door")
			chain := redlatch.WithOwner(a.Ctx)
			var mu sync.Mutex
			var order []string
			var all sync.WaitGroup
			for i, who := range []string{"first", "second", "b1", "b2", "b3"} {
				ctx, by := chain, a
				if who[0] == 'b' {
					ctx, by = b.Ctx, b
				}
				all.Go(func() {
					h, err := by.FairMutex("door").Lock(ctx)
					require.NoError(s, err)
					mu.Lock()
					order = append(order, who)
					mu.Unlock()
					s.Unlock(h)
				})
				s.Queued("door", int64(i)+1)
			}
			s.Unlock(h)
			all.Wait()
			require.ElementsMatch(s, []string{"first", "second"}, order[:2], "in this order, or inside of the first")
			require.Equal(s, []string{"b1", "b2", "b3"}, order[2:])
			s.NothingRemains()
		})
	}
}

// The wait callback of a lock overrides that of its client, also if it is none.
func TestAWaitCallbackCanBeUnset(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		var calls atomic.Int32
		holder, waiter := s.Actor(), s.Actor(redlatch.WithWaitCallback(func(lock.Waiting) { calls.Add(1) }))
		h := holder.LockFair("door")
		silent := waiter.BeginFair(waiter.Ctx, "door", redlatch.WithWaitCallback(nil))
		s.Queued("door", 1)
		s.Settle()
		require.Zero(s, calls.Load())
		next := waiter.BeginFair(waiter.Ctx, "door")
		s.Queued("door", 2)
		s.Settle()
		require.EqualValues(s, 1, calls.Load())
		s.Unlock(h)
		s.Unlock(silent.Got())
		s.Unlock(next.Got())
	})
}

// A waiter that gives up leaves no place behind, and a grant that it got meanwhile goes to the next
// waiter.
func TestGivingUpAPlaceLeavesNothing(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		time.Sleep(time.Millisecond) // fences of the first instant of a bubble look like those of Redisson
		h := holder.LockFair("door")
		ctx, cancel := context.WithCancel(a.Ctx)
		placed := make(chan struct{})
		place := sync.OnceFunc(func() { close(placed) })
		gone := a.BeginFair(ctx, "door", redlatch.WithWaitCallback(func(lock.Waiting) { place() }))
		s.Receive(placed, "it knows its place, and asks no more")
		next := s.Line("door", 2, b)
		cancel()
		err := gone.Failed()
		var facts *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &facts)
		require.ErrorIs(s, err, context.Canceled)
		require.Equal(s, h.ID(), facts.Holder)
		require.Equal(s, 1, facts.Position)
		require.GreaterOrEqual(s, facts.Length, 1)
		require.False(s, facts.Since.IsZero())
		if s.Virtual { // immediately, and not when its heartbeat has ended
			s.Settle()
			require.EqualValues(s, 2, s.Admin.ZCard(s.Context(), "redlatch:queue:{door}").Val())
		}
		s.Queued("door", 2)
		freed := time.Now()
		s.Unlock(h)
		s.Served(next)
		if s.Virtual {
			require.Equal(s, freed, next[1].At, "handed on at once, and not by a beat")
		}
		s.NothingRemains()
	})
}

// A grant for a waiter that gives up at the same moment is not lost. It goes to the next waiter
// immediately.
func TestAGrantToOneThatGivesUpMovesOn(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		for range 20 {
			holder, a, b := s.Actor(), s.Actor(), s.Actor() // a client that listens already would do less
			h := holder.LockFair("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			gone := a.BeginFair(ctx, "door")
			s.Queued("door", 1)
			next := s.Line("door", 1, b)
			go cancel()
			s.Unlock(h)
			s.Receive(gone.Done, "Lock returns")
			if gone.Err == nil {
				s.Unlock(gone.Hold)
			}
			s.Served(next)
			s.Await("no key is left", func() bool { return len(s.Keys()) == 0 })
		}
		s.NothingRemains() // once, because a client listens for a second more
	})
}

func TestCloseLeavesTheQueue(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		gone := s.Line("door", 5, a)
		next := s.Line("door", 1, b)
		require.NoError(s, a.Close(s.Context()))
		for _, w := range gone {
			require.ErrorIs(s, w.Failed(), redlatch.ErrClosed)
		}
		s.Queued("door", 1)
		s.Unlock(h)
		s.Served(next)
		s.NothingRemains()
	})
}

func TestTryLockNeverJumpsTheQueue(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		next := s.Line("door", 2, a)
		refused := func(held string) {
			_, err := b.FairMutex("door").TryLock(b.Ctx)
			var facts *redlatch.NotAcquiredError
			require.ErrorAs(s, err, &facts)
			if held != "" {
				require.Equal(s, held, facts.Holder)
			}
			require.Equal(s, 3, facts.Position)
			require.Equal(s, 2, facts.Length)
		}
		refused(h.ID())
		// The lock is free, and nobody has notified the queue.
		require.NoError(s, s.Admin.Del(s.Context(), "door").Err())
		_, err := b.FairMutex("door").TryLock(b.Ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		first := next[0].Got()
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.Unlock(first)
		s.Served(next[1:])
		s.NothingRemains()
	})
}

// The two kinds of mutex of a name exclude each other, and one chain re-enters by either.
func TestPlainAndFairMutexAreOneLock(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor(redlatch.WithPollInterval(500*time.Millisecond), redlatch.WithHeartbeat(1500*time.Millisecond))
		chain := redlatch.WithOwner(a.Ctx)
		plain, err := a.Mutex("door").Lock(chain)
		require.NoError(s, err)
		_, err = b.FairMutex("door").TryLock(b.Ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		inner, err := a.FairMutex("door").Lock(chain)
		require.NoError(s, err)
		require.Equal(s, plain.ID(), inner.ID())
		s.Unlock(inner)
		waits := b.BeginFair(b.Ctx, "door")
		s.Queued("door", 1)
		s.Unlock(plain)
		fair := waits.Got()
		_, err = a.Mutex("door").TryLock(a.Ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		queued := b.Begin(b.Ctx, "door")
		s.Unlock(fair)
		s.Unlock(queued.Got())

		// A chain that waits for one kind gets the lock by the other.
		other := b.LockFair("door")
		first, second := make(chan *lock.Hold, 1), make(chan *lock.Hold, 1)
		for got, lockIt := range map[chan *lock.Hold]func(context.Context) (*lock.Hold, error){
			first: a.Mutex("door").Lock, second: a.FairMutex("door", redlatch.WithHeartbeat(time.Second)).Lock,
		} {
			go func() {
				h, err := lockIt(chain)
				if err == nil {
					got <- h
				}
			}()
		}
		s.Queued("door", 1)
		s.Unlock(other)
		for _, got := range []chan *lock.Hold{first, second} {
			select {
			case h := <-got:
				defer s.Unlock(h)
			case <-time.After(stage.Guard):
				require.FailNow(s, "a chain waits for itself")
			}
		}
	})
}

func TestOperatorsSeeTheQueueAndRemoveAWaiter(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		holder := s.Actor(redlatch.WithDescription("holder"))
		a, b := s.Actor(redlatch.WithDescription("first")), s.Actor(redlatch.WithDescription("second, with blanks"))
		h := holder.LockFair("door")
		all := append(s.Line("door", 1, a), s.Line("door", 1, b)...)
		admin := s.Actor().FairMutex("door")
		_, _, err := admin.Queue(s.Context(), math.MaxInt, math.MaxInt)
		require.NoError(s, err)
		seen, length, err := admin.Queue(s.Context(), 0, 10)
		require.NoError(s, err)
		require.Equal(s, 2, length)
		require.Len(s, seen, 2)
		require.Equal(s, []string{"first", "second, with blanks"}, []string{seen[0].Description, seen[1].Description})
		require.Equal(s, stage.Heartbeat, seen[0].Heartbeat)
		require.False(s, seen[1].Since.Before(seen[0].Since))
		require.Positive(s, seen[0].HeartbeatLeft)

		did, err := admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.True(s, did)
		err = all[0].Failed()
		require.ErrorIs(s, err, redlatch.ErrRemoved)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		did, err = admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.False(s, did)

		had, err := admin.ForceRelease(s.Context(), "")
		require.NoError(s, err)
		require.Equal(s, h.ID(), had)
		s.Served(all[1:])
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
	})
}

// A waiter that was removed while its client got no messages finds the note.
func TestARemovedWaiterFindsTheNote(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		w := s.Line("door", 1, a)[0]
		time.Sleep(time.Minute)
		a.Net.BlackHole((*stage.Wire).Subscribes)
		admin := s.Actor().FairMutex("door")
		seen, _, err := admin.Queue(s.Context(), 0, 10)
		require.NoError(s, err)
		did, err := admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.True(s, did)
		require.ErrorIs(s, w.Failed(), redlatch.ErrRemoved)
		s.Unlock(h)
		time.Sleep(2 * time.Hour) // Redis keeps the note for an hour and two heartbeats
		s.NothingRemains()
	})
}

// Notices report the place of a waiter, and each change of it.
func TestCallbacksReportThePlace(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(redlatch.WithDescription("night job")), s.Actor(), s.Actor()
		time.Sleep(time.Second) // fences of the first instant of the bubble look like those of Redisson
		h := holder.LockFair("door")
		first := s.Line("door", 1, a)[0]
		var received []string
		second := b.BeginFair(b.Ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
			received = append(received, fmt.Sprintf("%s: %d of %d, %s", w.Name, w.Position, w.Length, w.Holder))
			require.False(s, w.Since.IsZero())
		}))
		s.Queued("door", 2)
		time.Sleep(time.Minute)
		s.Unlock(h)
		next := first.Got()
		time.Sleep(time.Minute)
		s.Unlock(next)
		s.Unlock(second.Got())
		require.Equal(s, []string{
			"door: 2 of 2, " + h.ID(), "door: 1 of 1, " + next.ID(),
		}, received)
	})
}

// The server's clock is an hour ahead, and then an hour behind. The clocks of the clients decide
// nothing.
func TestNoClientClockDecides(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				ctx, stop := context.WithCancel(s.Context())
				var clock sync.WaitGroup
				s.Sim.SetTime(time.Now().Add(off))
				clock.Go(func() {
					for tick := time.NewTicker(50 * time.Millisecond); ; {
						select {
						case <-tick.C:
							s.Sim.SetTime(time.Now().Add(off))
						case <-ctx.Done():
							tick.Stop()
							return
						}
					}
				})
				defer clock.Wait()
				defer stop()
				holder, a, b := s.Actor(), s.Actor(), s.Actor()
				h := holder.LockFair("door")
				all := s.Line("door", 10, a, b)
				time.Sleep(10 * time.Minute)
				s.Queued("door", 10)
				s.Unlock(h)
				s.Served(all)
				s.NothingRemains()
			})
		})
	}
}

// A queue ends by itself when everybody has abandoned it.
func TestAnAbandonedQueueEndsByItself(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(redlatch.WithLease(30*time.Second)), s.Actor(), s.Actor()
		holder.LockFair("door")
		s.Line("door", 20, a, b)
		for _, x := range []*stage.Actor{holder, a, b} {
			x.Die()
		}
		time.Sleep(3 * time.Minute)
		require.Empty(s, s.Keys())
	})
}

// Redis refuses the command of a waiter. The waiter gets the error immediately, and leaves nothing.
func TestAQueueOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a := s.Actor()
		require.NoError(s, s.Admin.Set(s.Context(), "redlatch:queue:{door}", "x", 0).Err())
		_, err := a.FairMutex("door").Lock(a.Ctx)
		require.ErrorIs(s, err, redlatch.ErrRefused)
		require.ErrorContains(s, err, "WRONGTYPE")
		require.Equal(s, []string{"redlatch:queue:{door}"}, s.Keys())
	})
}

// RedissonFairLockTest.testLeaseTimeout: holders that never unlock lose the lock at the end of
// their leases. The next waiters get it in order.
func TestFair_HoldersThatNeverUnlockAreFollowedInOrder(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		brief := []redlatch.Option{redlatch.WithLease(time.Second), redlatch.WithoutRenewal()}
		holder, a, b := s.Actor(brief...), s.Actor(brief...), s.Actor(brief...)
		first := holder.LockFair("door")
		all := s.Line("door", 8, a, b)
		var before time.Time
		for _, w := range all {
			h := w.Got()
			require.True(s, h.Trusted())
			require.False(s, w.At.Before(before.Add(time.Second)), "a whole lease each")
			before = w.At
			defer func() { require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost) }()
		}
		require.ErrorIs(s, first.Unlock(s.Context()), redlatch.ErrLost)
		time.Sleep(2 * time.Second)
		s.NothingRemains()
	})
}

// testMultipleLocks.
func TestFair_FiveHundredWaitersAllGetIt(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		actors := []*stage.Actor{s.Actor(), s.Actor(), s.Actor(), s.Actor()}
		h := actors[0].LockFair("door")
		var all []*stage.Asking
		waiters := redistest.Rounds(100, 500)
		for i := range waiters {
			all = append(all, actors[i%4].BeginFair(actors[i%4].Ctx, "door"))
		}
		s.Queued("door", int64(waiters))
		s.Unlock(h)
		var done sync.WaitGroup
		for _, w := range all {
			done.Go(func() {
				<-w.Done
				if w.Err == nil {
					w.Err = w.Hold.Unlock(context.Background())
				}
			})
		}
		done.Wait()
		for _, w := range all {
			require.NoError(s, w.Err)
		}
		s.NothingRemains()
	})
}

// testTryLockNonDelayed, and the drift tests: requests that gave up, or never waited, delay nobody.
func TestFair_ShortWaitsDelayNobody(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		for range 20 {
			_, err := a.FairMutex("door").TryLock(a.Ctx)
			require.ErrorIs(s, err, redlatch.ErrNotAcquired)
			brief, cancel := context.WithTimeout(a.Ctx, 5*time.Millisecond)
			_, err = a.FairMutex("door").Lock(brief)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		s.Queued("door", 0)
		next := s.Line("door", 1, b)
		s.Unlock(h)
		s.Served(next)
		s.NothingRemains()
	})
}

// testAcquireFailedNotCalledOnRedisTimeout: the server accepts no writes for a while.
func TestFair_APausedServerLeavesNobodyQueued(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		holder, a := s.Actor(), s.Actor()
		h := holder.LockFair("door")
		ctx, cancel := context.WithTimeout(a.Ctx, time.Second)
		defer cancel()
		w := a.BeginFair(ctx, "door")
		s.Queued("door", 1)
		require.NoError(s, s.Admin.Do(s.Context(), "CLIENT", "PAUSE", 3000, "WRITE").Err())
		require.ErrorIs(s, w.Failed(), context.DeadlineExceeded)
		s.Queued("door", 0)
		s.Unlock(h)
		s.NothingRemains()
	})
}

// The server accepts no writes for several heartbeats. No waiter has to queue again because of the
// refusals, and the server could not drop any.
func TestFair_AServerThatTakesNoWritesLosesNoPlace(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		const brief = 2 * time.Second
		holder, a := s.Actor(), s.Actor(redlatch.WithHeartbeat(brief))
		h := holder.LockFair("door")
		var again atomic.Bool
		notice := redlatch.WithWaitCallback(func(w lock.Waiting) {
			if w.Requeued {
				again.Store(true)
			}
		})
		var all []*stage.Asking
		for range 3 {
			all = append(all, a.BeginFair(a.Ctx, "door", notice))
			s.Queued("door", int64(len(all)))
		}
		require.NoError(s, s.Admin.Do(s.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		time.Sleep(3 * brief)
		require.NoError(s, s.Admin.Do(s.Context(), "REPLICAOF", "NO", "ONE").Err())
		s.Unlock(h)
		s.Served(all)
		require.False(s, again.Load(), "notified to queue again")
		s.NothingRemains()
	})
}

// testNameMapper.
func TestFair_APrefixIsBeforeTheQueueToo(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(redlatch.WithPrefix("svc:")), s.Actor(redlatch.WithPrefix("svc:"))
		h := a.LockFair("door")
		next := b.BeginFair(b.Ctx, "door")
		s.Queued("svc:door", 1)
		s.Unlock(h)
		s.Unlock(next.Got())
		s.NothingRemains()
	})
}

// The ends of heartbeats are instants of the server's clock. If the clock is set back by an hour,
// it must not keep crashed waiters for that long.
func TestFair_AClockSetBackDoesNotKeepTheDead(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		var by atomic.Int64 // nanoseconds by which the server's clock is ahead
		ctx, stop := context.WithCancel(s.Context())
		var clock sync.WaitGroup
		clock.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.Sim.SetTime(time.Now().Add(time.Duration(by.Load())))
				case <-ctx.Done():
					return
				}
			}
		})
		defer clock.Wait()
		defer stop()
		holder, victim, a := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		s.Line("door", 20, victim)
		next := s.Line("door", 2, a)
		time.Sleep(time.Minute)
		victim.Die()
		by.Store(int64(-time.Hour))
		time.Sleep(time.Second)
		freed := time.Now()
		s.Unlock(h)
		h = next[0].Got()
		require.LessOrEqual(s, next[0].At.Sub(freed), 2*stage.Heartbeat) // virtual time
		s.Unlock(h)
		s.Served(next[1:])
		s.NothingRemains()
	})
}

// The notice is code of the user, and runs in the middle of the wait.
func TestFair_ACallbackThatPanicsLeavesNoPlace(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = a.FairMutex("door", redlatch.WithWaitCallback(func(lock.Waiting) { panic("notice") })).Lock(a.Ctx)
		}()
		<-done
		next := b.BeginFair(b.Ctx, "door")
		time.Sleep(time.Second)
		freed := time.Now()
		s.Unlock(h)
		h = next.Got()
		require.Less(s, next.At.Sub(freed), time.Second)
		s.Unlock(h)
		s.NothingRemains()
	})
}

// A notice that blocks costs its own waiter the lock, and the others a heartbeat.
func TestFair_ACallbackThatBlocksKeepsTheLockFromNobody(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		holder, a, b := s.Actor(), s.Actor(), s.Actor()
		h := holder.LockFair("door")
		shown, blocked, again := make(chan struct{}, 100), make(chan struct{}), atomic.Bool{}
		first := a.BeginFair(a.Ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
			again.Store(again.Load() || w.Requeued)
			shown <- struct{}{}
			<-blocked
		}))
		<-shown
		next := s.Line("door", 1, b)[0]
		freed := time.Now()
		s.Unlock(h)
		h = next.Got()
		require.LessOrEqual(s, next.At.Sub(freed), stage.Heartbeat+10*time.Millisecond)
		close(blocked)
		<-shown
		require.True(s, first.Pending())
		s.Unlock(h)
		s.Unlock(first.Got())
		require.True(s, again.Load())
		s.NothingRemains()
	})
}

// Redisson does not know the queue. When it frees a lock, the message makes one waiter of each
// client ask, and the first of the queue gets the lock before any heartbeat.
func TestTheQueueIsServedWhenRedissonUnlocks(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		rare := []redlatch.Option{redlatch.WithHeartbeat(time.Hour), redlatch.WithLease(time.Hour)}
		a, b := s.Actor(rare...), s.Actor(rare...)
		s.RedissonHolds("door", "java:1")
		all := s.Line("door", 6, a, b)
		time.Sleep(time.Minute)
		for _, w := range all {
			require.True(s, w.Pending())
		}
		asksA, asksB := a.Scripts.Load(), b.Scripts.Load()
		freed := time.Now()
		s.RedissonFrees("door")
		h := all[0].Got()
		require.Zero(s, all[0].At.Sub(freed))
		s.Settle()
		require.LessOrEqual(s, a.Scripts.Load()-asksA, int64(2), "one of three waiters asks, perhaps for the message of its grant too")
		require.EqualValues(s, 1, b.Scripts.Load()-asksB, "one of three waiters asks")
		s.Unlock(h)
		s.Served(all[1:])
		s.NothingRemains()
	})
}

// Redisson may be faster than the queue again and again. The first waiter still asks at each
// message, so that it has a chance each time. If nobody freed the lock, it soon asks less often.
func TestTheFirstWaiterAsksAtEachReleaseAndNotAtEachMessage(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor(redlatch.WithHeartbeat(time.Hour), redlatch.WithLease(time.Hour))
		s.RedissonHolds("door", "java:1")
		w := s.Line("door", 1, a)[0]
		time.Sleep(time.Minute)
		const messages = 100
		round := func(before func()) (asks int64) {
			asks = a.Scripts.Load()
			for range messages {
				before()
				require.NoError(s, s.Admin.Publish(s.Context(), key.ForMutex("door").Channel, "0").Err())
				s.Settle()
				time.Sleep(50 * time.Millisecond)
			}
			return a.Scripts.Load() - asks
		}
		require.EqualValues(s, messages, round(func() { s.RedissonHolds("door", "java:1") }), "it held the lock anew")
		require.Less(s, round(func() {}), int64(messages*3/4), "nobody freed the lock")
		require.True(s, w.Pending())
		s.RedissonFrees("door")
		s.Unlock(w.Got())
		s.NothingRemains()
	})
}
