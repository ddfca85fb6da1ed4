package redlatch_test

import (
	"context"
	"fmt"
	"math"
	"strings"
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
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: the promises of a queue beyond those of every lock, with the default
// heartbeat of five seconds.
const heartbeat = 5 * time.Second

// beginFair is begin for the fair mutex.
func (a *actor) beginFair(ctx context.Context, name string, options ...redlatch.LockOption) *asking {
	w := &asking{a: a, before: a.scripts.Load(), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold, w.err = a.FairMutex(name, options...).Lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// queued returns when n waiters are in the queue.
func (s *stage) queued(name string, n int64) {
	s.Helper()
	s.await(fmt.Sprintf("%d wait", n), func() bool {
		return s.admin.ZCard(context.Background(), key.ForMutex(name).Queue).Val() == n
	})
}

// line makes n waiters queue, one after the other, each from the next actor.
func (s *stage) line(name string, n int, actors ...*actor) (all []*asking) {
	s.Helper()
	had := s.admin.ZCard(context.Background(), key.ForMutex(name).Queue).Val()
	for i := range n {
		a := actors[i%len(actors)]
		all = append(all, a.beginFair(a.ctx, name))
		s.queued(name, had+int64(i)+1)
	}
	return all
}

// served asserts that the waiters get the lock in this order. None of them gets it before the one
// before it has unlocked.
func (s *stage) served(all []*asking) {
	s.Helper()
	for i, w := range all {
		h := w.got()
		s.settle()
		for _, later := range all[i+1:] {
			require.True(s, later.pending(), "out of order")
		}
		require.True(s, h.Trusted())
		s.unlock(h)
	}
}

func (a *actor) lockFair(name string) *lock.Hold {
	a.s.Helper()
	return a.beginFair(a.ctx, name).got()
}

// A hold lasts ten hours in make verify, and one hour elsewhere. A hundred waiters live, none of them is
// dropped, and the order is that of their arrival. They cost heartbeats in batches.
func TestFairWaitersOutlastTenHours(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		long := time.Duration(redistest.Rounds(1, 10)) * time.Hour
		// Rare heartbeats, so that the embedded server handles them soon.
		slow := redlatch.WithHeartbeat(long / 10)
		holder, a, b, c := s.actor(), s.actor(slow), s.actor(slow), s.actor(slow)
		h := holder.lockFair("door")
		all := s.line("door", 100, a, b, c)
		// Every ten seconds they check whether their own client has the lock. At such an instant it
		// may have it, because others get the lock at that instant.
		time.Sleep(long + 5*time.Second)
		for _, w := range all {
			require.True(s, w.pending())
		}
		s.unlock(h)
		s.served(all)
		s.nothingRemains()
		for _, x := range []*actor{holder, a, b, c} {
			require.Empty(s, x.log.lines())
			require.Zero(s, redlatch.NamesInUse(x.Client))
			require.Zero(s, redlatch.FairWaiting(x.Client))
		}
	})
}

// Up to a thousand waiters of one client wait for an hour. A hundred of them cost one heartbeat command
// in each third of the heartbeat, and a few more because batches split by chance, and nothing else.
func TestAThousandWaitersCostTheirHeartbeats(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const slow = time.Hour // each heartbeat is sent three times in it
		waiters := int64(redistest.Rounds(300, 1000))
		holder, a := s.actor(), s.actor(redlatch.WithHeartbeat(slow), redlatch.WithLease(slow))
		h := holder.lockFair("door")
		ctx, cancel := context.WithCancel(a.ctx)
		var all []*asking
		for range waiters {
			all = append(all, a.beginFair(ctx, "door"))
		}
		s.queued("door", waiters)
		time.Sleep(slow / 3)
		before := a.scripts.Load()
		time.Sleep(time.Hour)
		rounds := int64(time.Hour / (slow / 3))
		beats := a.scripts.Load() - before
		require.Greater(s, beats, rounds*waiters/100*9/10)
		require.Less(s, beats, rounds*waiters/100*5/2, "batches, and nothing more")
		cancel()
		for _, w := range all {
			require.ErrorIs(s, w.failed(), context.Canceled)
		}
		s.queued("door", 0)
		s.unlock(h)
		s.nothingRemains()
	})
}

// Five hundred waiters crash at once. The next live waiter has the lock within one heartbeat of the
// crash, for any number of crashed waiters.
func TestTheCrashedDelayTheQueueByOneHeartbeatInAll(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, victims, a := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		for range 500 {
			victims.beginFair(victims.ctx, "door")
		}
		s.queued("door", 500)
		next := s.line("door", 3, a)
		victims.die()
		died := time.Now()
		time.Sleep(time.Second)
		s.unlock(h)
		s.served(next)
		require.LessOrEqual(s, next[0].at.Sub(died), heartbeat+10*time.Millisecond)
		s.nothingRemains()
	})
}

// All waiters of a long queue have crashed. Nevertheless a plain waiter is notified of the release,
// and does not wait for its poll.
func TestAPlainWaiterBehindVeryManyExpiredIsNotified(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(s *stage, a *actor, h *lock.Hold){
		"unlock": func(s *stage, _ *actor, h *lock.Hold) { s.unlock(h) },
		"force release": func(s *stage, a *actor, h *lock.Hold) {
			victim, err := a.FairMutex("door").ForceRelease(a.ctx, "")
			require.NoError(s, err)
			require.Equal(s, h.ID(), victim)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				holder, a := s.actor(), s.actor()
				h := holder.lockFair("door")
				w := a.begin(a.ctx, "door").asked(2)
				had := redis.Z{Score: float64(time.Now().UnixMilli() - 1), Member: "grace"}
				dead := make([]redis.Z, 2500)
				for i := range dead {
					dead[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("dead:%d 1 3600000 3600000", i)}
				}
				require.NoError(s, s.admin.ZAdd(s.Context(), "redlatch:queue:{door}", dead...).Err())
				require.NoError(s, s.admin.ZAdd(s.Context(), "redlatch:alive:{door}", append(dead, had)...).Err())
				free(s, holder, h)
				freed := time.Now()
				next := w.got()
				require.Zero(s, w.at.Sub(freed))
				s.unlock(next)
				if name != "unlock" {
					require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
				}
				s.nothingRemains()
			})
		})
	}
}

// If a waiter crashes between its grant and taking it over, it costs the rest of its heartbeat.
func TestAWaiterThatDiesWithTheGrantCostsAHeartbeat(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, victim, a := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		s.line("door", 1, victim)
		next := s.line("door", 1, a)
		victim.die()
		s.unlock(h)
		granted := time.Now()
		require.NotZero(s, s.admin.Exists(s.Context(), "door").Val(), "the dead one has it")
		s.served(next)
		require.LessOrEqual(s, next[0].at.Sub(granted), heartbeat+10*time.Millisecond)
		s.nothingRemains()
	})
}

// It does not cost more than its lease, if that is shorter than the heartbeat. The next heartbeat
// of the others finds when the lease ends, or that it has ended.
func TestAWaiterThatDiesWithTheGrantCostsItsLeaseAtMost(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const lease = 500 * time.Millisecond
		holder, victim, a := s.actor(), s.actor(redlatch.WithLease(lease)), s.actor()
		h := holder.lockFair("door")
		s.line("door", 1, victim)
		next := s.line("door", 1, a)
		victim.die()
		s.unlock(h)
		granted := time.Now()
		require.NotZero(s, s.admin.Exists(s.Context(), "door").Val(), "the dead one has it")
		s.served(next)
		require.LessOrEqual(s, next[0].at.Sub(granted), max(lease, heartbeat/3+heartbeat/10))
		s.nothingRemains()
	})
}

// The lease of a crashed holder ends, and the next waiter gets the lock at that moment. It asks by
// itself, and does not wait for a heartbeat.
func TestTheNextAfterACrashedHolderGetsTheLockAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(redlatch.WithLease(30*time.Second)), s.actor(), s.actor()
		h := holder.lockFair("door")
		all := s.line("door", 4, a, b)
		time.Sleep(time.Minute) // the lease is renewed
		holder.die()
		left := s.admin.PTTL(s.Context(), "door").Val()
		died := time.Now()
		s.served(all)
		require.InDelta(s, float64(left), float64(all[0].at.Sub(died)), float64(50*time.Millisecond))
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.nothingRemains()
	})
}

// The server answers nobody for a minute, which is twelve heartbeats. Redis drops no waiter because
// of that, and the order stays.
func TestAServerThatStandsStillLosesNobody(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b, c := s.actor(), s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		all := s.line("door", 30, a, b, c)
		places := func() []string { return s.admin.ZRange(s.Context(), "redlatch:queue:{door}", 0, -1).Val() }
		before := places()
		for range 3 {
			for _, x := range []*actor{a, b, c} {
				x.net.dead.Store(true)
				x.net.cut(func(*wire) bool { return true })
			}
			time.Sleep(time.Minute)
			for _, x := range []*actor{a, b, c} {
				x.net.dead.Store(false)
			}
			time.Sleep(time.Minute)
			require.Equal(s, before, places(), "nobody was dropped, and had to queue again")
		}
		s.unlock(h)
		s.served(all)
		s.nothingRemains()
	})
}

// The server loses everything. All waiters queue again, with their old tickets, and are notified of
// that. The order is the same as before.
func TestAQueueThatTheServerLostComesBackInOrder(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		var mu sync.Mutex
		again := map[int]bool{}
		var all []*asking
		for i := range 20 {
			x := []*actor{a, b}[i%2]
			all = append(all, x.beginFair(x.ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
				mu.Lock()
				defer mu.Unlock()
				again[i] = again[i] || w.Requeued
			})))
			s.queued("door", int64(i+1))
		}
		time.Sleep(time.Minute)
		require.NoError(s, s.admin.Do(s.Context(), "FLUSHALL").Err())
		// Another client gets the lock first. The queue comes back behind it.
		other := s.actor().lockFair("door")
		s.receive(h.Lost(), "the holder is notified")
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.queued("door", 20)
		mu.Lock()
		require.Len(s, again, 20)
		for i, told := range again {
			require.True(s, told, "waiter %d was not told", i)
		}
		mu.Unlock()
		s.unlock(other)
		s.served(all)
		s.nothingRemains()
	})
}

// Without pub/sub, the waiter finds its grant at its next heartbeat.
func TestAGrantWhoseMessageIsLostComesWithAHeartbeat(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		deaf := a.beginFair(a.ctx, "door")
		s.queued("door", 1)
		time.Sleep(time.Minute)
		a.net.blackHole((*wire).subscribes)
		s.unlock(h)
		freed := time.Now()
		h = deaf.got()
		require.LessOrEqual(s, deaf.at.Sub(freed), heartbeat/3)
		require.Greater(s, deaf.at.Sub(freed), time.Duration(0), "the message was not lost")
		require.True(s, h.Trusted())
		s.unlock(h)
		s.nothingRemains()
	})
}

// A message is only a hint, and anybody may publish it. The waiter asks Redis and goes on waiting.
// It does not ask without a pause.
func TestAHintThatIsNotTrueIsAskedForOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		w := s.line("door", 1, a)[0]
		channel, id := s.hintTo(holder)
		time.Sleep(time.Second)
		s.settle()
		before := a.scripts.Load()
		s.sim.Publish(channel, id)
		s.settle()
		require.EqualValues(s, 1, a.scripts.Load()-before)
		require.True(s, w.pending())
		s.unlock(h)
		s.unlock(w.got())
		s.nothingRemains()
	})
}

// hintTo returns a message to the first waiter in the queue.
func (s *stage) hintTo(a *actor) (channel, acquisition string) {
	s.Helper()
	seen, _, err := a.FairMutex("door").Queue(s.Context(), 0, 1)
	require.NoError(s, err)
	client, _, _ := strings.Cut(seen[0].ID, ":")
	return "redlatch:client:" + client, seen[0].ID
}

// A flood of messages on the channel does not make the waiter flood Redis. The waiter still gets
// the true message among them, and gets it immediately after a quiet time.
func TestForgedHintsAreBounded(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const flood = 20 * time.Second
		holder, a := s.actor(), s.actor()
		for _, quiet := range []time.Duration{0, 3 * time.Second} {
			h := holder.lockFair("door")
			w := s.line("door", 1, a)[0]
			channel, id := s.hintTo(holder)
			before := a.scripts.Load()
			for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
				s.sim.Publish(channel, id)
			}
			asked := a.scripts.Load() - before
			beats := int64(flood/(heartbeat/3)) + 1
			require.LessOrEqual(s, asked, int64(flood/(100*time.Millisecond))+20+beats, "once each 100 ms, after a few")
			require.Greater(s, asked, 50+beats, "they are heard")
			time.Sleep(quiet)
			freed := time.Now()
			s.unlock(h)
			s.unlock(w.got())
			if quiet == 0 {
				require.LessOrEqual(s, w.at.Sub(freed), 100*time.Millisecond)
			} else {
				require.Zero(s, w.at.Sub(freed))
			}
		}
		s.nothingRemains()
	})
}

// Anybody may publish to the channel of the lock too.
func TestForgedReleasesAreBounded(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const flood = 20 * time.Second
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		w := s.line("door", 1, a)[0]
		before := a.scripts.Load()
		for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
			s.sim.Publish("redisson_lock__channel:{door}", "0")
		}
		asked := a.scripts.Load() - before
		beats := int64(flood/(heartbeat/3)) + 1
		require.LessOrEqual(s, asked, int64(flood/(100*time.Millisecond))+20+beats, "once each 100 ms, after a few")
		require.Greater(s, asked, 50+beats, "they are heard")
		s.unlock(h)
		s.unlock(w.got())
		s.nothingRemains()
	})
}

// A message may overtake the answer to the join. The waiter acts on it when the answer has come.
func TestAHintBeforeTheAnswerOfTheJoinIsHeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		a, b := locksOn(t, v.Client()), locksOn(t, v.Client())
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
	inVirtualTime(t, func(s *stage) {
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		w := a.beginFair(a.ctx, "door")
		s.queued("door", 1)
		time.Sleep(time.Second)
		s.settle()
		byHolder, byNext := holder.scripts.Load(), a.scripts.Load()
		unlocked := time.Now()
		s.unlock(h)
		h = w.got()
		require.Equal(s, unlocked, w.at)
		require.EqualValues(s, 1, holder.scripts.Load()-byHolder)
		require.EqualValues(s, 1, a.scripts.Load()-byNext)
		require.Greater(s, s.admin.PTTL(s.Context(), "door").Val(), faraway-time.Second, "the whole lease")
		require.Greater(s, time.Until(h.TrustedUntil()), faraway-2*time.Second)
		time.Sleep(10 * time.Millisecond)
		s.unlock(h)
		s.settle()
		require.EqualValues(s, 2, a.scripts.Load()-byNext, "and nothing is renewed")
		s.nothingRemains()
	})
}

// A waiter tries to re-enter when its chain gets the lock by another call. If that call has
// released the lock by then, the waiter has kept its place, and is the next.
func TestWhoCannotEnterAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for range 20 {
		inVirtualTime(t, func(s *stage) {
			holder, a, b := s.actor(), s.actor(), s.actor()
			h := holder.lockFair("door")
			chain := redlatch.WithOwner(a.ctx)
			var mu sync.Mutex
			var order []string
			var all sync.WaitGroup
			for i, who := range []string{"first", "second", "b1", "b2", "b3"} {
				ctx, by := chain, a
				if who[0] == 'b' {
					ctx, by = b.ctx, b
				}
				all.Go(func() {
					h, err := by.FairMutex("door").Lock(ctx)
					require.NoError(s, err)
					mu.Lock()
					order = append(order, who)
					mu.Unlock()
					s.unlock(h)
				})
				s.queued("door", int64(i)+1)
			}
			s.unlock(h)
			all.Wait()
			require.ElementsMatch(s, []string{"first", "second"}, order[:2], "in this order, or inside of the first")
			require.Equal(s, []string{"b1", "b2", "b3"}, order[2:])
			s.nothingRemains()
		})
	}
}

// A waiter that gives up leaves no place behind, and a grant that it got meanwhile goes to the next
// waiter.
func TestGivingUpAPlaceLeavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		time.Sleep(time.Millisecond) // fences of the first instant of a bubble look like those of Redisson
		h := holder.lockFair("door")
		ctx, cancel := context.WithCancel(a.ctx)
		told := make(chan struct{})
		tell := sync.OnceFunc(func() { close(told) })
		gone := a.beginFair(ctx, "door", redlatch.WithWaitCallback(func(lock.Waiting) { tell() }))
		s.receive(told, "it knows its place, and asks no more")
		next := s.line("door", 2, b)
		cancel()
		err := gone.failed()
		var facts *redlatch.NotAcquiredError
		require.ErrorAs(s, err, &facts)
		require.ErrorIs(s, err, context.Canceled)
		require.Equal(s, h.ID(), facts.Holder)
		require.Equal(s, 1, facts.Position)
		require.GreaterOrEqual(s, facts.Length, 1)
		require.False(s, facts.Since.IsZero())
		if s.virtual { // immediately, and not when its heartbeat has ended
			s.settle()
			require.EqualValues(s, 2, s.admin.ZCard(s.Context(), "redlatch:queue:{door}").Val())
		}
		s.queued("door", 2)
		freed := time.Now()
		s.unlock(h)
		s.served(next)
		if s.virtual {
			require.Equal(s, freed, next[1].at, "handed on at once, and not by a beat")
		}
		s.nothingRemains()
	})
}

// A grant for a waiter that gives up at the same moment is not lost. It goes to the next waiter
// immediately.
func TestAGrantToOneThatGivesUpMovesOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		for range 20 {
			h := holder.lockFair("door")
			ctx, cancel := context.WithCancel(a.ctx)
			gone := a.beginFair(ctx, "door")
			s.queued("door", 1)
			next := s.line("door", 1, b)
			go cancel()
			s.unlock(h)
			s.receive(gone.done, "Lock returns")
			if gone.err == nil {
				s.unlock(gone.hold)
			}
			s.served(next)
			s.nothingRemains()
		}
	})
}

func TestCloseLeavesTheQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		gone := s.line("door", 5, a)
		next := s.line("door", 1, b)
		require.NoError(s, a.Close(s.Context()))
		for _, w := range gone {
			require.ErrorIs(s, w.failed(), redlatch.ErrClosed)
		}
		s.queued("door", 1)
		s.unlock(h)
		s.served(next)
		s.nothingRemains()
	})
}

func TestTryLockNeverJumpsTheQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		next := s.line("door", 2, a)
		refused := func(held string) {
			_, err := b.FairMutex("door").TryLock(b.ctx)
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
		require.NoError(s, s.admin.Del(s.Context(), "door").Err())
		_, err := b.FairMutex("door").TryLock(b.ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		first := next[0].got()
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
		s.unlock(first)
		s.served(next[1:])
		s.nothingRemains()
	})
}

// The two kinds of mutex of a name exclude each other, and one chain re-enters by either.
func TestPlainAndFairMutexAreOneLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		a, b := s.actor(), s.actor(redlatch.WithPollInterval(500*time.Millisecond), redlatch.WithHeartbeat(1500*time.Millisecond))
		chain := redlatch.WithOwner(a.ctx)
		plain, err := a.Mutex("door").Lock(chain)
		require.NoError(s, err)
		_, err = b.FairMutex("door").TryLock(b.ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		inner, err := a.FairMutex("door").Lock(chain)
		require.NoError(s, err)
		require.Equal(s, plain.ID(), inner.ID())
		s.unlock(inner)
		waits := b.beginFair(b.ctx, "door")
		s.queued("door", 1)
		s.unlock(plain)
		fair := waits.got()
		_, err = a.Mutex("door").TryLock(a.ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		queued := b.begin(b.ctx, "door")
		s.unlock(fair)
		s.unlock(queued.got())

		// A chain that waits for one kind gets the lock by the other.
		other := b.lockFair("door")
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
		s.queued("door", 1)
		s.unlock(other)
		for _, got := range []chan *lock.Hold{first, second} {
			select {
			case h := <-got:
				defer s.unlock(h)
			case <-time.After(atMost):
				require.FailNow(s, "a chain waits for itself")
			}
		}
	})
}

func TestOperatorsSeeTheQueueAndRemoveAWaiter(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder := s.actor(redlatch.WithDescription("holder"))
		a, b := s.actor(redlatch.WithDescription("first")), s.actor(redlatch.WithDescription("second, with blanks"))
		h := holder.lockFair("door")
		all := append(s.line("door", 1, a), s.line("door", 1, b)...)
		admin := s.actor().FairMutex("door")
		_, _, err := admin.Queue(s.Context(), math.MaxInt, math.MaxInt)
		require.NoError(s, err)
		seen, length, err := admin.Queue(s.Context(), 0, 10)
		require.NoError(s, err)
		require.Equal(s, 2, length)
		require.Len(s, seen, 2)
		require.Equal(s, []string{"first", "second, with blanks"}, []string{seen[0].Description, seen[1].Description})
		require.Equal(s, heartbeat, seen[0].Heartbeat)
		require.False(s, seen[1].Since.Before(seen[0].Since))
		require.Positive(s, seen[0].HeartbeatLeft)

		did, err := admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.True(s, did)
		err = all[0].failed()
		require.ErrorIs(s, err, redlatch.ErrRemoved)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired)
		did, err = admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.False(s, did)

		had, err := admin.ForceRelease(s.Context(), "")
		require.NoError(s, err)
		require.Equal(s, h.ID(), had)
		s.served(all[1:])
		require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost)
	})
}

// A waiter that was removed while its client got no messages finds the note.
func TestARemovedWaiterFindsTheNote(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		w := s.line("door", 1, a)[0]
		time.Sleep(time.Minute)
		a.net.blackHole((*wire).subscribes)
		admin := s.actor().FairMutex("door")
		seen, _, err := admin.Queue(s.Context(), 0, 10)
		require.NoError(s, err)
		did, err := admin.RemoveWaiter(s.Context(), seen[0].ID)
		require.NoError(s, err)
		require.True(s, did)
		require.ErrorIs(s, w.failed(), redlatch.ErrRemoved)
		s.unlock(h)
		time.Sleep(2 * time.Hour) // Redis keeps the note for an hour and two heartbeats
		s.nothingRemains()
	})
}

// Notices report the place of a waiter, and each change of it.
func TestCallbacksReportThePlace(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(redlatch.WithDescription("night job")), s.actor(), s.actor()
		time.Sleep(time.Second) // fences of the first instant of the bubble look like those of Redisson
		h := holder.lockFair("door")
		first := s.line("door", 1, a)[0]
		var heard []string
		second := b.beginFair(b.ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
			heard = append(heard, fmt.Sprintf("%s: %d of %d, %s", w.Name, w.Position, w.Length, w.Holder))
			require.False(s, w.Since.IsZero())
		}))
		s.queued("door", 2)
		time.Sleep(time.Minute)
		s.unlock(h)
		next := first.got()
		time.Sleep(time.Minute)
		s.unlock(next)
		s.unlock(second.got())
		require.Equal(s, []string{
			"door: 2 of 2, " + h.ID(), "door: 1 of 1, " + next.ID(),
		}, heard)
	})
}

// The server's clock is an hour ahead, and then an hour behind. The clocks of the clients decide
// nothing.
func TestNoClientClockDecides(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				ctx, stop := context.WithCancel(s.Context())
				var clock sync.WaitGroup
				s.sim.SetTime(time.Now().Add(off))
				clock.Go(func() {
					for tick := time.NewTicker(50 * time.Millisecond); ; {
						select {
						case <-tick.C:
							s.sim.SetTime(time.Now().Add(off))
						case <-ctx.Done():
							tick.Stop()
							return
						}
					}
				})
				defer clock.Wait()
				defer stop()
				holder, a, b := s.actor(), s.actor(), s.actor()
				h := holder.lockFair("door")
				all := s.line("door", 10, a, b)
				time.Sleep(10 * time.Minute)
				s.queued("door", 10)
				s.unlock(h)
				s.served(all)
				s.nothingRemains()
			})
		})
	}
}

// A queue ends by itself when everybody has abandoned it.
func TestAnAbandonedQueueEndsByItself(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(redlatch.WithLease(30*time.Second)), s.actor(), s.actor()
		holder.lockFair("door")
		s.line("door", 20, a, b)
		for _, x := range []*actor{holder, a, b} {
			x.die()
		}
		time.Sleep(3 * time.Minute)
		require.Empty(s, s.keys())
	})
}

// Redis refuses the command of a waiter. The waiter gets the error immediately, and leaves nothing.
func TestAQueueOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		a := s.actor()
		require.NoError(s, s.admin.Set(s.Context(), "redlatch:queue:{door}", "x", 0).Err())
		_, err := a.FairMutex("door").Lock(a.ctx)
		require.ErrorIs(s, err, redlatch.ErrRefused)
		require.ErrorContains(s, err, "WRONGTYPE")
		require.Equal(s, []string{"redlatch:queue:{door}"}, s.keys())
	})
}

// RedissonFairLockTest.testLeaseTimeout: holders that never unlock lose the lock at the end of
// their leases. The next waiters get it in order.
func TestFair_HoldersThatNeverUnlockAreFollowedInOrder(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		brief := []redlatch.Option{redlatch.WithLease(time.Second), redlatch.WithoutRenewal()}
		holder, a, b := s.actor(brief...), s.actor(brief...), s.actor(brief...)
		first := holder.lockFair("door")
		all := s.line("door", 8, a, b)
		var before time.Time
		for _, w := range all {
			h := w.got()
			require.True(s, h.Trusted())
			require.False(s, w.at.Before(before.Add(time.Second)), "a whole lease each")
			before = w.at
			defer func() { require.ErrorIs(s, h.Unlock(s.Context()), redlatch.ErrLost) }()
		}
		require.ErrorIs(s, first.Unlock(s.Context()), redlatch.ErrLost)
		time.Sleep(2 * time.Second)
		s.nothingRemains()
	})
}

// testMultipleLocks.
func TestFair_FiveHundredWaitersAllGetIt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		actors := []*actor{s.actor(), s.actor(), s.actor(), s.actor()}
		h := actors[0].lockFair("door")
		var all []*asking
		waiters := redistest.Rounds(100, 500)
		for i := range waiters {
			all = append(all, actors[i%4].beginFair(actors[i%4].ctx, "door"))
		}
		s.queued("door", int64(waiters))
		s.unlock(h)
		var done sync.WaitGroup
		for _, w := range all {
			done.Go(func() {
				<-w.done
				if w.err == nil {
					w.err = w.hold.Unlock(context.Background())
				}
			})
		}
		done.Wait()
		for _, w := range all {
			require.NoError(s, w.err)
		}
		s.nothingRemains()
	})
}

// testTryLockNonDelayed, and the drift tests: requests that gave up, or never waited, delay nobody.
func TestFair_ShortWaitsDelayNobody(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		for range 20 {
			_, err := a.FairMutex("door").TryLock(a.ctx)
			require.ErrorIs(s, err, redlatch.ErrNotAcquired)
			brief, cancel := context.WithTimeout(a.ctx, 5*time.Millisecond)
			_, err = a.FairMutex("door").Lock(brief)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		s.queued("door", 0)
		next := s.line("door", 1, b)
		s.unlock(h)
		s.served(next)
		s.nothingRemains()
	})
}

// testAcquireFailedNotCalledOnRedisTimeout: the server accepts no writes for a while.
func TestFair_APausedServerLeavesNobodyQueued(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		holder, a := s.actor(), s.actor()
		h := holder.lockFair("door")
		ctx, cancel := context.WithTimeout(a.ctx, time.Second)
		defer cancel()
		w := a.beginFair(ctx, "door")
		s.queued("door", 1)
		require.NoError(s, s.admin.Do(s.Context(), "CLIENT", "PAUSE", 3000, "WRITE").Err())
		require.ErrorIs(s, w.failed(), context.DeadlineExceeded)
		s.queued("door", 0)
		s.unlock(h)
		s.nothingRemains()
	})
}

// The server accepts no writes for several heartbeats. No waiter has to queue again because of the
// refusals, and the server could not drop any.
func TestFair_AServerThatTakesNoWritesLosesNoPlace(t *testing.T) {
	t.Parallel()
	onServer(t, func(s *stage) {
		const brief = 2 * time.Second
		holder, a := s.actor(), s.actor(redlatch.WithHeartbeat(brief))
		h := holder.lockFair("door")
		var again atomic.Bool
		notice := redlatch.WithWaitCallback(func(w lock.Waiting) {
			if w.Requeued {
				again.Store(true)
			}
		})
		var all []*asking
		for range 3 {
			all = append(all, a.beginFair(a.ctx, "door", notice))
			s.queued("door", int64(len(all)))
		}
		require.NoError(s, s.admin.Do(s.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		time.Sleep(3 * brief)
		require.NoError(s, s.admin.Do(s.Context(), "REPLICAOF", "NO", "ONE").Err())
		s.unlock(h)
		s.served(all)
		require.False(s, again.Load(), "told to queue again")
		s.nothingRemains()
	})
}

// testNameMapper.
func TestFair_APrefixIsBeforeTheQueueToo(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(redlatch.WithPrefix("svc:")), s.actor(redlatch.WithPrefix("svc:"))
		h := a.lockFair("door")
		next := b.beginFair(b.ctx, "door")
		s.queued("svc:door", 1)
		s.unlock(h)
		s.unlock(next.got())
		s.nothingRemains()
	})
}

// The ends of heartbeats are instants of the server's clock. If the clock is set back by an hour,
// it must not keep crashed waiters for that long.
func TestFair_AClockSetBackDoesNotKeepTheDead(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		var by atomic.Int64 // nanoseconds by which the server's clock is ahead
		ctx, stop := context.WithCancel(s.Context())
		var clock sync.WaitGroup
		clock.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.sim.SetTime(time.Now().Add(time.Duration(by.Load())))
				case <-ctx.Done():
					return
				}
			}
		})
		defer clock.Wait()
		defer stop()
		holder, victim, a := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		s.line("door", 20, victim)
		next := s.line("door", 2, a)
		time.Sleep(time.Minute)
		victim.die()
		by.Store(int64(-time.Hour))
		time.Sleep(time.Second)
		freed := time.Now()
		s.unlock(h)
		h = next[0].got()
		require.LessOrEqual(s, next[0].at.Sub(freed), 2*heartbeat) // virtual time
		s.unlock(h)
		s.served(next[1:])
		s.nothingRemains()
	})
}

// The notice is code of the user, and runs in the middle of the wait.
func TestFair_ACallbackThatPanicsLeavesNoPlace(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = a.FairMutex("door", redlatch.WithWaitCallback(func(lock.Waiting) { panic("notice") })).Lock(a.ctx)
		}()
		<-done
		next := b.beginFair(b.ctx, "door")
		time.Sleep(time.Second)
		freed := time.Now()
		s.unlock(h)
		h = next.got()
		require.Less(s, next.at.Sub(freed), time.Second)
		s.unlock(h)
		s.nothingRemains()
	})
}

// A notice that blocks costs its own waiter the lock, and the others a heartbeat.
func TestFair_ACallbackThatBlocksKeepsTheLockFromNobody(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		holder, a, b := s.actor(), s.actor(), s.actor()
		h := holder.lockFair("door")
		shown, blocked, again := make(chan struct{}, 100), make(chan struct{}), atomic.Bool{}
		first := a.beginFair(a.ctx, "door", redlatch.WithWaitCallback(func(w lock.Waiting) {
			again.Store(again.Load() || w.Requeued)
			shown <- struct{}{}
			<-blocked
		}))
		<-shown
		next := s.line("door", 1, b)[0]
		freed := time.Now()
		s.unlock(h)
		h = next.got()
		require.LessOrEqual(s, next.at.Sub(freed), heartbeat+10*time.Millisecond)
		close(blocked)
		<-shown
		require.True(s, first.pending())
		s.unlock(h)
		s.unlock(first.got())
		require.True(s, again.Load())
		s.nothingRemains()
	})
}

// redissonHolds makes an RLock of Redisson hold the name, or hand it to another owner.
func (s *stage) redissonHolds(name, owner string) {
	s.Helper()
	require.NoError(s, s.admin.HSet(s.Context(), name, owner, 1).Err())
	require.NoError(s, s.admin.PExpire(s.Context(), name, time.Hour).Err())
}

// redissonFrees does what the unlock of an RLock does.
func (s *stage) redissonFrees(name string) {
	s.Helper()
	require.NoError(s, s.admin.Del(s.Context(), name).Err())
	require.NoError(s, s.admin.Publish(s.Context(), key.ForMutex(name).Channel, "0").Err())
}

// Redisson does not know the queue. When it frees a lock, the message makes one waiter of each client
// ask, and the first of the queue gets the lock before any heartbeat.
func TestTheQueueIsServedWhenRedissonUnlocks(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		rare := []redlatch.Option{redlatch.WithHeartbeat(time.Hour), redlatch.WithLease(time.Hour)}
		a, b := s.actor(rare...), s.actor(rare...)
		s.redissonHolds("door", "java:1")
		all := s.line("door", 6, a, b)
		time.Sleep(time.Minute)
		for _, w := range all {
			require.True(s, w.pending())
		}
		asksA, asksB := a.scripts.Load(), b.scripts.Load()
		freed := time.Now()
		s.redissonFrees("door")
		h := all[0].got()
		require.Zero(s, all[0].at.Sub(freed))
		s.settle()
		require.LessOrEqual(s, a.scripts.Load()-asksA, int64(2), "one of three waiters asks, perhaps for the message of its grant too")
		require.EqualValues(s, 1, b.scripts.Load()-asksB, "one of three waiters asks")
		s.unlock(h)
		s.served(all[1:])
		s.nothingRemains()
	})
}

// Redisson may be faster than the queue again and again. The first waiter still asks at each message,
// so that it has a chance each time. If nobody freed the lock, it soon asks less often.
func TestTheFirstWaiterAsksAtEachReleaseAndNotAtEachMessage(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor(redlatch.WithHeartbeat(time.Hour), redlatch.WithLease(time.Hour))
		s.redissonHolds("door", "java:1")
		w := s.line("door", 1, a)[0]
		time.Sleep(time.Minute)
		const messages = 100
		round := func(before func()) (asks int64) {
			asks = a.scripts.Load()
			for range messages {
				before()
				require.NoError(s, s.admin.Publish(s.Context(), key.ForMutex("door").Channel, "0").Err())
				s.settle()
				time.Sleep(50 * time.Millisecond)
			}
			return a.scripts.Load() - asks
		}
		require.EqualValues(s, messages, round(func() { s.redissonHolds("door", "java:1") }), "it held the lock anew")
		require.Less(s, round(func() {}), int64(messages*3/4), "nobody freed the lock")
		require.True(s, w.pending())
		s.redissonFrees("door")
		s.unlock(w.got())
		s.nothingRemains()
	})
}
