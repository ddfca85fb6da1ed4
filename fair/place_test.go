package fair_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: a live waiter keeps its place in a queue, and soon knows of its grant,
// whatever its link or the server does meanwhile.

// Redis runs B's request for a place, and loses its replies on connections that stay open. B asks
// again while its place is certainly there, so it is served before C.
func TestLostRepliesToARequestCostNoPlace(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		for heartbeat, lost := range map[time.Duration]int{
			100 * time.Millisecond: 1, time.Second: 2, 2 * time.Second: 2, 5 * time.Second: 2,
		} {
			t.Run(name+", heartbeat "+heartbeat.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { repliesToARequestAreLost(t, by, heartbeat, lost) })
			})
		}
	}
}

func repliesToARequestAreLost(t *testing.T, by locker, heartbeat time.Duration, lost int) {
	v := redistest.Bubble(t)
	link := v.Another()
	a, c := stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client())
	b := stage.LocksOn(t, link.Client(), redlatch.WithHeartbeat(heartbeat))
	known, err := by(t.Context(), b, "elsewhere") // B learns the server's clock
	require.NoError(t, err)
	known.release(t)
	held, err := by(t.Context(), a, "door")
	require.NoError(t, err)

	order := make(chan string, 2)
	lock := func(name string, locks *redlatch.Client) {
		h, err := by(t.Context(), locks, "door")
		if err == nil {
			order <- name
			h.release(t)
		}
	}
	request := func(cmd []string) bool { return requestFor(cmd, "door") != "" }
	fault := link.Inject(redistest.Rule{Match: request, Times: lost, Action: redistest.LoseReply()})
	go lock("B", b)
	fault.Await(1)
	go lock("C", c)
	synctest.Wait()
	time.Sleep(2 * heartbeat)
	require.Equal(t, lost, fault.Bites())
	held.release(t)
	require.Equal(t, "B", <-order)
	require.Equal(t, "C", <-order)
	time.Sleep(time.Minute)
}

// The server refuses everything for fifty heartbeats, several times. Afterwards every waiter sends
// its heartbeat in time. Nobody is dropped, and nobody queues again.
func TestAServerThatRefusesForAWhileDropsNobody(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		for _, heartbeat := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			t.Run(name+", heartbeat "+heartbeat.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { serverRefuses(t, by, heartbeat) })
			})
		}
	}
}

func serverRefuses(t *testing.T, by locker, heartbeat time.Duration) {
	const waiters = 8
	v := redistest.Bubble(t)
	lease := redlatch.WithLease(time.Hour)
	held, err := by(t.Context(), stage.LocksOn(t, v.Client(), lease), "door")
	require.NoError(t, err)
	order := make(chan int, waiters)
	for i := range waiters {
		locks := stage.LocksOn(t, v.Client(), lease, redlatch.WithHeartbeat(heartbeat))
		go func() {
			if h, err := by(t.Context(), locks, "door"); err == nil {
				order <- i
				h.release(t)
			}
		}()
		synctest.Wait()
	}
	places := func() (all []string) {
		for _, queue := range []string{key.ForMutex("door").Queue, key.ForSemaphore("door").Queue} {
			members, err := v.Client().ZRange(t.Context(), queue, 0, -1).Result()
			require.NoError(t, err)
			all = append(all, members...)
		}
		return all
	}
	before := places()
	require.Len(t, before, waiters)
	for range 3 {
		loading := v.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("LOADING Redis is loading")})
		time.Sleep(50 * heartbeat)
		loading.Disarm()
		time.Sleep(5 * heartbeat)
		require.Equal(t, before, places())
	}
	held.release(t)
	for i := range waiters {
		require.Equal(t, i, <-order)
	}
	time.Sleep(time.Minute)
}

// A grant comes in the gap between two pub/sub connections of a client, and its message is lost.
// All waiters of the client send heartbeats in batches when the new connection listens. The next
// heartbeat would come much later.
func TestAGrantWhoseMessageFellIntoAGapIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	for _, lock := range []func(a *stage.Actor) *stage.Asking{
		func(a *stage.Actor) *stage.Asking { return a.BeginFair(a.Ctx, "door") }, (*stage.Actor).BeginPermit,
	} {
		stage.InVirtualTime(t, func(s *stage.Stage) {
			const patient, waiters = time.Hour, 300
			a, b := s.Actor(), s.Actor(redlatch.WithHeartbeat(patient))
			holder := lock(a)
			s.Receive(holder.Done, "the lock is free")
			var all []*stage.Asking
			for range waiters {
				all = append(all, lock(b))
				s.Settle()
			}

			gate := make(chan struct{})
			b.Net.OnDial(func() { <-gate })
			b.Net.Cut((*stage.Wire).Subscribes)
			holder.GiveBack()
			s.Settle()
			require.Zero(s, b.Net.Subscribers(), "nobody may have subscribed")
			require.True(s, all[0].Pending())
			before, freed := b.Scripts.Load(), time.Now()
			close(gate)
			s.Receive(all[0].Done, "the first has the lock")
			require.Less(s, all[0].At.Sub(freed), stage.Faraway/6, "the next beat, a third of the lease later")
			require.LessOrEqual(s, b.Scripts.Load()-before, int64(10), "the waiters do not all ask")
			for _, w := range all {
				s.Receive(w.Done, "everybody gets the lock")
				w.GiveBack()
			}
		})
	}
}

// B gets no messages, and its lease is shorter than a third of its heartbeat. It learns of its
// grant by a heartbeat before the grant ends.
func TestAWaiterWithoutMessagesTakesAShortGrant(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const lease = 200 * time.Millisecond
				v := redistest.Bubble(t)
				link := v.Another()
				a := stage.LocksOn(t, v.Client())
				b := stage.LocksOn(t, link.Client(), redlatch.WithLease(lease), redlatch.WithHeartbeat(5*time.Second))
				link.BlackHole(redistest.SubscriberTraffic)
				held, err := by(t.Context(), a, "door")
				require.NoError(t, err)
				got := make(chan claim, 1)
				go func() {
					if h, err := by(t.Context(), b, "door"); err == nil {
						got <- h
					}
				}()
				time.Sleep(20 * time.Second)
				freed := time.Now()
				held.release(t)
				h := <-got
				require.Less(t, time.Since(freed), lease)
				h.release(t)
				link.Heal()
				time.Sleep(time.Minute)
			})
		})
	}
}

// B gets the lock, and its command that takes the grant is lost or takes longer than its heartbeat.
// B asks again while the grant is valid. So it is served before C, which waits behind it.
func TestOneLostOrSlowAttemptCostsNoGrant(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		for what, action := range map[string]redistest.Action{
			"lost": redistest.Swallow(), "reply lost": redistest.LoseReply(),
			"connection dead": redistest.SilenceBoth(), "slow": redistest.DelayRequest(1500 * time.Millisecond),
		} {
			for _, heartbeat := range []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
				t.Run(name+", "+what+", heartbeat "+heartbeat.String(), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { questionGoesWrong(t, by, heartbeat, action) })
				})
			}
		}
	}
}

func questionGoesWrong(t *testing.T, by locker, heartbeat time.Duration, action redistest.Action) {
	v := redistest.Bubble(t)
	link := v.Another()
	a, c := stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client(), redlatch.WithHeartbeat(heartbeat))
	lost := false
	b := stage.LocksOn(t, link.Client(), redlatch.WithHeartbeat(heartbeat),
		redlatch.WithWaitCallback(func(w lock.Waiting) { lost = lost || w.Requeued }))
	held, err := by(t.Context(), a, "door")
	require.NoError(t, err)
	order := make(chan string, 2)
	wait := func(name string, locks *redlatch.Client) {
		h, err := by(t.Context(), locks, "door")
		if err == nil {
			order <- name
			time.Sleep(10 * heartbeat)
			h.release(t)
		}
	}
	go wait("B", b)
	synctest.Wait()
	go wait("C", c)
	time.Sleep(10*heartbeat + heartbeat/10)
	fault := link.Inject(redistest.Rule{Match: takesAGrant, Times: 1, Action: action})
	freed := time.Now()
	held.release(t)
	require.Equal(t, "B", <-order)
	require.Less(t, time.Since(freed), heartbeat)
	require.Equal(t, "C", <-order)
	require.Equal(t, 1, fault.Bites())
	require.False(t, lost, "B queued again")
	time.Sleep(time.Minute)
}

// A round trip takes more than half of the heartbeat. Nevertheless B gets a free lock, and one that
// it waits for. Each attempt that is cut off too early makes later ones longer.
func TestASlowLinkKeepsNobodyFromTheLock(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		for _, roundTrip := range []time.Duration{40, 52, 60, 80} {
			t.Run(fmt.Sprintf("%s, %d ms", name, roundTrip), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					v := redistest.Bubble(t)
					link := v.Another()
					a := stage.LocksOn(t, v.Client())
					b := stage.LocksOn(t, link.Client(), redlatch.WithHeartbeat(100*time.Millisecond))
					link.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.DelayReply(roundTrip * time.Millisecond)})
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					h, err := by(ctx, b, "free")
					require.NoError(t, err)
					h.release(t)

					held, err := by(ctx, a, "door")
					require.NoError(t, err)
					freed := time.AfterFunc(2*time.Second, func() { held.release(t) })
					defer freed.Stop()
					h, err = by(ctx, b, "door")
					require.NoError(t, err)
					h.release(t)
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// A round trip takes a little more than a third of the lease, which is the usual time of an
// attempt. The client knows that, so its release in the background gets its answer, and is not sent
// again for as long as the place could stand.
func TestOverASlowLinkTheBackgroundReleasesOnce(t *testing.T) {
	t.Parallel()
	for name, by := range queueLockers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				link := v.Another()
				a := stage.LocksOn(t, v.Client())
				b := stage.LocksOn(t, link.Client(), redlatch.WithLease(200*time.Millisecond))
				var releases atomic.Int64
				link.Inject(redistest.Rule{Match: func(cmd []string) bool {
					if stage.Runs("fair/leave")(cmd) || stage.Runs("semaphore/release")(cmd) {
						releases.Add(1)
					}
					return redistest.Command("EVAL", "EVALSHA")(cmd)
				}, Action: redistest.DelayRequest(68 * time.Millisecond)})
				held, err := by(t.Context(), a, "door")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = by(ctx, b, "door")
				require.Error(t, err)
				time.Sleep(time.Minute)
				require.NotZero(t, releases.Load())
				require.LessOrEqual(t, releases.Load(), int64(4), "once for each id that it used")
				held.release(t)
			})
		})
	}
}

// The same link has time for an Unlock, whose last renewal may have taken most of its trust, and
// for one with a context that has ended.
func TestASlowLinkHasTimeForAnUnlock(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]locker{"mutex": byMutex, "fair mutex": byFairMutex, "semaphore": bySemaphore} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, context ended: %v", name, ended), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					v := redistest.Bubble(t)
					locks := stage.LocksOn(t, v.Client(), redlatch.WithLease(200*time.Millisecond))
					v.Inject(redistest.Rule{Match: redistest.Command("EVAL", "EVALSHA"), Action: redistest.DelayReply(68 * time.Millisecond)})
					for i := range 20 {
						h, err := by(t.Context(), locks, "door")
						require.NoError(t, err)
						time.Sleep(300*time.Millisecond + time.Duration(i)*7*time.Millisecond)
						ctx, cancel := context.WithCancel(t.Context())
						if ended {
							cancel()
						}
						require.NoError(t, unlock(ctx, h))
						cancel()
					}
				})
			})
		}
	}
}

func unlock(ctx context.Context, c claim) error {
	if permit, ok := c.(permitClaim); ok {
		return permit.Release(ctx)
	}
	return c.(lockClaim).Unlock(ctx)
}

// B gives up while its link is down, for longer than its lease. Its place would stay for its whole
// heartbeat. The client gives it up when the link is back.
func TestAPlaceIsGivenUpForAsLongAsItStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heartbeat, lease = 10 * time.Minute, 10 * time.Second
		v := redistest.Bubble(t)
		link := v.Another()
		a := stage.LocksOn(t, v.Client())
		b := stage.LocksOn(t, link.Client(), redlatch.WithHeartbeat(heartbeat), redlatch.WithLease(lease))
		held, err := byFairMutex(t.Context(), a, "door")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := byFairMutex(ctx, b, "door"); failed <- err }()
		synctest.Wait()
		link.Down()
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		time.Sleep(heartbeat - time.Minute)
		link.Up()
		time.Sleep(30 * time.Second)
		places, err := v.Client().ZCard(t.Context(), key.ForMutex("door").Queue).Result()
		require.NoError(t, err)
		require.Zero(t, places)
		held.release(t)
	})
}

// The first command of an Unlock frees the lock, and many expired waiters must still be dropped.
// That fails until the context of the Unlock ends. Nevertheless the lock is free, and the client
// does the rest later.
func TestAnUnlockThatFreedTheLockSaysSo(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{
		"replies lost": redistest.LoseReply(), "refused": redistest.Refuse("NOPERM no"), "requests lost": redistest.Swallow(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				link := v.Another()
				b := stage.LocksOn(t, link.Client())
				queue := key.ForMutex("door").Queue
				var h claim
				for range 2 { // the server knows the scripts the second time
					if h != nil {
						h.release(t)
					}
					var err error
					h, err = byFairMutex(t.Context(), b, "door")
					require.NoError(t, err)
				}
				deadWaiters(t, v.Client(), "door", 1200)
				fault := link.Inject(redistest.Rule{
					Match: func(cmd []string) bool { return lua.ScriptName(cmd) == "fair/leave" }, Skip: 1, Action: action,
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.NoError(t, h.(lockClaim).Unlock(ctx))
				require.Positive(t, fault.Bites())
				there, err := v.Client().Exists(t.Context(), "door").Result()
				require.NoError(t, err)
				require.Zero(t, there)
				fault.Disarm()
				time.Sleep(5 * time.Second)
				left, err := v.Client().ZCard(t.Context(), queue).Result()
				require.NoError(t, err)
				require.Zero(t, left, "dead waiters that are left")
			})
		})
	}
}

// takesAGrant matches the command of a waiter that takes over its grant.
func takesAGrant(cmd []string) bool {
	switch lua.ScriptName(cmd) {
	case "fair/beat", "semaphore/beat":
		keys, _ := strconv.Atoi(cmd[2])
		return cmd[3+keys+2] == "1"
	}
	return false
}

// A program that records the id of a waiter can later find its place among all waiters. A waiter
// that queues again has another id.
func TestAWaitCallbackKnowsTheIDInTheQueue(t *testing.T) {
	t.Parallel()
	type scene struct {
		by    locker
		queue func(ctx context.Context, skip, show int) ([]lock.Waiter, int, error)
		keys  []string // of the queue
		wait  func(ctx context.Context) error
	}
	for name, sceneOf := range map[string]func(c *redlatch.Client, o redlatch.LockOption) scene{
		"fair mutex": func(c *redlatch.Client, o redlatch.LockOption) scene {
			m, k := c.FairMutex("door", o), key.ForMutex("door")
			return scene{byFairMutex, m.Queue, []string{k.Queue, k.Alive}, func(ctx context.Context) error { _, err := m.Lock(ctx); return err }}
		},
		"semaphore": func(c *redlatch.Client, o redlatch.LockOption) scene {
			s, k := c.Semaphore("door", 1, o), key.ForSemaphore("door")
			return scene{bySemaphore, s.Queue, []string{k.Queue, k.Alive}, func(ctx context.Context) error { _, err := s.Acquire(ctx, 1); return err }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				var seen []lock.Waiting
				s := sceneOf(stage.LocksOn(t, v.Client()), redlatch.WithWaitCallback(func(w lock.Waiting) { seen = append(seen, w) }))
				held, err := s.by(t.Context(), stage.LocksOn(t, v.Client()), "door")
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- s.wait(ctx) }()
				synctest.Wait()
				inQueue := func() string {
					waiters, _, err := s.queue(t.Context(), 0, 10)
					require.NoError(t, err)
					require.Len(t, waiters, 1)
					return waiters[0].ID
				}
				require.Len(t, seen, 1)
				require.Equal(t, inQueue(), seen[0].ID)

				require.EqualValues(t, 2, v.Client().Del(t.Context(), s.keys...).Val())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				last := seen[len(seen)-1]
				require.True(t, last.Requeued)
				require.NotEqual(t, seen[0].ID, last.ID)
				require.Equal(t, inQueue(), last.ID)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				held.release(t)
			})
		})
	}
}
