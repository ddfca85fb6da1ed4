package fair_test

import (
	"context"
	"fmt"
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
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: operators get true answers about a queue, whatever happens to the queue,
// the waiters and the link meanwhile.

// queuesOf are the queues that operators can inspect, with their keys.
var queuesOf = map[string]func(c *redlatch.Client, name string) (l stage.WaitingLine, queue, alive string){
	"fair mutex": func(c *redlatch.Client, name string) (stage.WaitingLine, string, string) {
		k := key.ForMutex(name)
		return c.FairMutex(name), k.Queue, k.Alive
	},
	"semaphore": func(c *redlatch.Client, name string) (stage.WaitingLine, string, string) {
		k := key.ForSemaphore(name)
		return c.Semaphore(name, 1), k.Queue, k.Alive
	},
}

// everyQueue runs play with an operator whose link may fail.
func everyQueue(t *testing.T, play func(t *testing.T, v, link *redistest.Virtual, by locker, open func(*redlatch.Client) stage.WaitingLine, keys [2]string)) {
	t.Helper()
	for name, of := range queuesOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				open := func(c *redlatch.Client) stage.WaitingLine { l, _, _ := of(c, "door"); return l }
				_, queue, alive := of(nil, "door")
				play(t, v, v.Another(), queueLockers[name], open, [2]string{queue, alive})
			})
		})
	}
}

// byHand puts live waiters into a queue, and returns their entries.
func byHand(t *testing.T, rdb *redis.Client, keys [2]string, n int) (members []string) {
	t.Helper()
	queued, beats := make([]redis.Z, n), make([]redis.Z, n)
	for i := range n {
		members = append(members, fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d 1 3600000 30000 by hand", i))
		queued[i] = redis.Z{Score: float64(time.Now().UnixMicro() + int64(i/3)), Member: members[i]} // some with the same ticket
		beats[i] = redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: members[i]}
	}
	require.NoError(t, rdb.ZAdd(t.Context(), keys[0], queued...).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), keys[1], beats...).Err())
	members, err := rdb.ZRange(t.Context(), keys[0], 0, -1).Result()
	require.NoError(t, err)
	return members
}

// Waiters in front leave between two pages. They are few or very many. The operator finds the
// waiter behind them. A read of the queue shows everybody who stayed, once.
func TestAQueueThatMovesHidesNobody(t *testing.T) {
	t.Parallel()
	for _, leave := range []int{1, 700, 1500, 2400} {
		everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, _ locker, open func(*redlatch.Client) stage.WaitingLine, keys [2]string) {
			const waiters = 2500
			operator := open(stage.LocksOn(t, link.Client()))
			_, _, err := operator.Queue(t.Context(), 0, 1) // the server knows the scripts
			require.NoError(t, err)
			_, err = operator.RemoveWaiter(t.Context(), "nobody")
			require.NoError(t, err)
			move := func(look func()) {
				all := byHand(t, v.Client(), keys, waiters)
				slow := link.Inject(redistest.Rule{Match: pages, Skip: 2, Times: 1, Action: redistest.DelayRequest(100 * time.Millisecond)})
				hand, gone := v.Client(), make([]any, leave)
				for i := range gone {
					gone[i] = all[i]
				}
				left := time.AfterFunc(50*time.Millisecond, func() { _ = hand.ZRem(context.Background(), keys[0], gone...).Err() })
				defer left.Stop()
				look()
				require.Equal(t, 1, slow.Bites())
				require.NoError(t, v.Client().Del(t.Context(), keys[0], keys[1]).Err())
			}
			move(func() {
				seen, length, err := operator.Queue(t.Context(), 0, 100_000)
				require.NoError(t, err)
				require.Equal(t, waiters-leave, length)
				count := map[string]int{}
				for _, w := range seen {
					count[w.ID]++
				}
				for i := leave; i < waiters; i++ {
					require.Equal(t, 1, count[fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d", i)])
				}
				require.Len(t, seen, len(count))
			})
			move(func() {
				did, err := operator.RemoveWaiter(t.Context(), fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d", waiters-1))
				require.NoError(t, err)
				require.True(t, did)
			})
		})
	}
}

// pages matches the commands that read a part of a queue.
func pages(cmd []string) bool { return stage.Runs("queue/list")(cmd) || stage.Runs("queue/find")(cmd) }

// The first waiter leaves before each page is read. Every page continues where the one before
// ended. So a read and a removal take as many commands as there are pages.
func TestAQueueThatAlwaysMovesIsReadOnce(t *testing.T) {
	t.Parallel()
	everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, _ locker, open func(*redlatch.Client) stage.WaitingLine, keys [2]string) {
		const waiters, most = 4500, 5
		operator := open(stage.LocksOn(t, link.Client()))
		_, _, err := operator.Queue(t.Context(), 0, 1) // the server knows the scripts
		require.NoError(t, err)
		_, err = operator.RemoveWaiter(t.Context(), "nobody")
		require.NoError(t, err)
		all := byHand(t, v.Client(), keys, waiters)
		front := v.Client()
		looks := link.Inject(redistest.Rule{Match: func(cmd []string) bool {
			if !pages(cmd) {
				return false
			}
			if len(all) < waiters-20 {
				return true // far too many pages, so the test ends it
			}
			first := all[0]
			all = all[1:]
			return front.ZRem(context.Background(), keys[0], first).Err() == nil
		}})
		seen, _, err := operator.Queue(t.Context(), 0, 100_000)
		require.NoError(t, err)
		require.Len(t, seen, waiters-1)
		require.Equal(t, most, looks.Bites())
		did, err := operator.RemoveWaiter(t.Context(), fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d", waiters-1))
		require.NoError(t, err)
		require.True(t, did)
		require.Equal(t, 2*most, looks.Bites())
	})
}

// Operators read a long queue in pages, so no command keeps the server busy. A call that asks for
// no waiters returns none.
func TestALookAtAQueueIsReadInPages(t *testing.T) {
	t.Parallel()
	everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, _ locker, open func(*redlatch.Client) stage.WaitingLine, keys [2]string) {
		operator := open(stage.LocksOn(t, link.Client()))
		byHand(t, v.Client(), keys, 2500)
		looks := link.Inject(redistest.Rule{Match: func(cmd []string) bool {
			if !pages(cmd) {
				return false
			}
			require.LessOrEqual(t, len(cmd[7]), len("1000"), "waiters in one command")
			return true
		}})
		for _, c := range []struct{ skip, show, want int }{
			{0, 0, 0}, {0, -5, 0}, {-1, 2, 2}, {0, 1, 1}, {0, 1000, 1000}, {0, 1001, 1001}, {0, 20_000, 2500}, {2400, 1000, 100}, {2500, 1, 0}, {5000, 0, 0},
		} {
			seen, length, err := operator.Queue(t.Context(), c.skip, c.show)
			require.NoError(t, err)
			require.Equal(t, 2500, length)
			require.Len(t, seen, c.want, "%+v", c)
		}
		did, err := operator.RemoveWaiter(t.Context(), "22222222-2222-2222-2222-222222222222:2499")
		require.NoError(t, err)
		require.True(t, did)
		require.Positive(t, looks.Bites())
	})
}

// A waiter gets the lock while the first attempt to remove it is in flight. Or it is removed, and
// the reply is lost. The answer says which.
func TestARemovalSaysWhatBecameOfTheWaiter(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string]bool{"granted meanwhile": false, "removed, and the reply lost": true} {
		t.Run(name, func(t *testing.T) {
			everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, by locker, open func(*redlatch.Client) stage.WaitingLine, _ [2]string) {
				a, b, operator := stage.LocksOn(t, v.Client()), stage.LocksOn(t, v.Client()), open(stage.LocksOn(t, link.Client()))
				held, err := by(t.Context(), a, "door")
				require.NoError(t, err)
				got := make(chan error, 1)
				go func() {
					h, err := by(t.Context(), b, "door")
					if got <- err; err == nil {
						h.release(t)
					}
				}()
				synctest.Wait()
				seen, _, err := operator.Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				_, err = operator.RemoveWaiter(t.Context(), "nobody") // no waiter, so no script
				require.NoError(t, err)
				lost := redistest.Rule{Match: stage.Runs("queue/remove"), Skip: 1, Times: 1, Action: redistest.CutReply()}
				if !removed {
					time.AfterFunc(20*time.Millisecond, func() { held.release(t) })
					link.Inject(redistest.Rule{Match: stage.Runs("queue/remove"), Times: 1, Action: redistest.DelayRequest(100 * time.Millisecond)})
					lost.Skip = 0
				}
				fault := link.Inject(lost)
				did, err := operator.RemoveWaiter(t.Context(), seen[0].ID)
				require.NoError(t, err)
				require.Equal(t, removed, did)
				require.Equal(t, 1, fault.Bites())
				if removed {
					require.ErrorIs(t, <-got, redlatch.ErrRemoved)
					held.release(t)
				} else {
					require.NoError(t, <-got)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// The removed waiter is cut off for almost an hour. When it is back, it finds the note, and does
// not queue again.
func TestARemovedWaiterIsNotifiedAfterALongCutOff(t *testing.T) {
	t.Parallel()
	everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, by locker, open func(*redlatch.Client) stage.WaitingLine, _ [2]string) {
		a, b := stage.LocksOn(t, v.Client()), stage.LocksOn(t, link.Client())
		held, err := by(t.Context(), a, "door")
		require.NoError(t, err)
		got := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Minute)
		defer cancel()
		go func() { _, err := by(ctx, b, "door"); got <- err }()
		synctest.Wait()
		operator := open(a)
		seen, _, err := operator.Queue(t.Context(), 0, 1)
		require.NoError(t, err)
		link.Down()
		did, err := operator.RemoveWaiter(t.Context(), seen[0].ID)
		require.NoError(t, err)
		require.True(t, did)
		time.Sleep(59 * time.Minute)
		link.Up()
		require.ErrorIs(t, <-got, redlatch.ErrRemoved)
		held.release(t)
	})
}

// With an error, the result shows nobody, and as far as is known nobody was removed.
func TestAQueueThatCannotBeReadShowsNobody(t *testing.T) {
	t.Parallel()
	everyQueue(t, func(t *testing.T, v, link *redistest.Virtual, _ locker, open func(*redlatch.Client) stage.WaitingLine, keys [2]string) {
		operator := open(stage.LocksOn(t, link.Client()))
		byHand(t, v.Client(), keys, 1500)
		_, _, err := operator.Queue(t.Context(), 0, 1)
		require.NoError(t, err)
		refused := link.Inject(redistest.Rule{Match: pages, Skip: 1, Action: redistest.Refuse("NOPERM no")})
		seen, length, err := operator.Queue(t.Context(), 0, 1500)
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.Empty(t, seen)
		require.Zero(t, length)
		did, err := operator.RemoveWaiter(t.Context(), "22222222-2222-2222-2222-222222222222:1")
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.False(t, did)
		refused.Disarm()

		link.Inject(redistest.Rule{Match: stage.Runs("queue/remove"), Action: redistest.LoseReply()})
		did, err = operator.RemoveWaiter(t.Context(), "22222222-2222-2222-2222-222222222222:1")
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		require.False(t, did)
	})
}

// forcible is a mutex of either kind.
type forcible interface {
	Lock(ctx context.Context) (*lock.Hold, error)
	ForceRelease(ctx context.Context, expected string) (string, error)
}

var forcibles = map[string]func(*redlatch.Client) forcible{
	"mutex":      func(c *redlatch.Client) forcible { return c.Mutex("door") },
	"fair mutex": func(c *redlatch.Client) forcible { return c.FairMutex("door") },
}

// isForce matches a forced release of either kind.
func isForce(cmd []string) bool {
	return stage.Runs("mutex/force_release")(cmd) || stage.Runs("fair/force_release")(cmd)
}

// An operator names a holder that has released the lock, and one command is lost. The next holder
// keeps the lock, and nobody reports that the first one was ended.
func TestAForcedReleaseWithALostReplyClaimsNothing(t *testing.T) {
	t.Parallel()
	for name, of := range forcibles {
		for what, action := range map[string]redistest.Action{"reply": redistest.CutReply(), "request": redistest.CutRequest()} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					v := redistest.Bubble(t)
					link := v.Another()
					a, b, operator := of(stage.LocksOn(t, v.Client())), of(stage.LocksOn(t, v.Client())), of(stage.LocksOn(t, link.Client()))
					first, err := a.Lock(t.Context())
					require.NoError(t, err)
					was := first.ID()
					require.NoError(t, first.Unlock(t.Context()))
					second, err := b.Lock(t.Context())
					require.NoError(t, err)
					who, err := operator.ForceRelease(t.Context(), was)
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					require.Equal(t, second.ID(), who)

					fault := link.Inject(redistest.Rule{Match: isForce, Times: 1, Action: action})
					who, err = operator.ForceRelease(t.Context(), was)
					require.ErrorIs(t, err, redlatch.ErrIndeterminate)
					require.Empty(t, who)
					require.Equal(t, 1, fault.Bites())
					require.NoError(t, second.Unlock(t.Context()), "it was not ended")
				})
			})
		}
	}
}

// An operator ends whichever acquisition has the lock. The holder that the operator finds releases
// the lock before the command arrives. Another client gets the lock and keeps it.
func TestAForcedReleaseOfAnybodySparesTheNextHolder(t *testing.T) {
	t.Parallel()
	for name, of := range forcibles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				link := v.Another()
				a, b, operator := of(stage.LocksOn(t, v.Client())), of(stage.LocksOn(t, v.Client())), of(stage.LocksOn(t, link.Client()))
				who, err := operator.ForceRelease(t.Context(), "") // the server knows the script
				require.NoError(t, err)
				require.Empty(t, who)
				first, err := a.Lock(t.Context())
				require.NoError(t, err)
				// The first command asks who has the lock, and the second one ends that holder.
				slow := link.Inject(redistest.Rule{Match: isForce, Skip: 1, Times: 1, Action: redistest.DelayRequest(100 * time.Millisecond)})
				got := make(chan *lock.Hold, 1)
				time.AfterFunc(20*time.Millisecond, func() {
					_ = first.Unlock(context.Background())
					second, _ := b.Lock(context.Background())
					got <- second
				})
				who, err = operator.ForceRelease(t.Context(), "")
				require.NoError(t, err)
				require.Empty(t, who)
				require.Equal(t, 1, slow.Bites())
				require.NoError(t, (<-got).Unlock(t.Context()))
			})
		})
	}
}

// The lock is free, and the queue has more crashed waiters than one command drops.
func TestATryBehindVeryManyExpiredIsGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		a := stage.LocksOn(t, v.Client())
		deadWaiters(t, v.Client(), "door", 2600)
		h, err := a.FairMutex("door").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// A request for more units than are free crashed at the head of the queue. As soon as an operator
// has removed it, those behind it are served, and do not wait for a heartbeat.
func TestAfterARemovalThoseBehindAreServedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		crashed := v.Another()
		long := redlatch.WithHeartbeat(time.Minute)
		sem := func(link *redistest.Virtual) *semaphore.Semaphore {
			return stage.LocksOn(t, link.Client(), long).Semaphore("render", 4)
		}
		operator := sem(v)
		held := stage.MustAcquire(t, operator, 2)
		_, failed := stage.AcquireInBackground(t.Context(), sem(crashed), 4)
		synctest.Wait()
		time.Sleep(time.Second)
		got, _ := stage.AcquireInBackground(t.Context(), sem(v), 1)
		time.Sleep(time.Second)
		crashed.Down()
		waiters, length, err := operator.Queue(t.Context(), 0, 2)
		require.NoError(t, err)
		require.Equal(t, 2, length)
		removed, err := operator.RemoveWaiter(t.Context(), waiters[0].ID)
		require.NoError(t, err)
		require.True(t, removed)
		before := time.Now()
		next := <-got
		waited := time.Since(before)
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, held.Release(t.Context()))
		crashed.Up()
		require.ErrorIs(t, <-failed, redlatch.ErrRemoved)
		require.Less(t, waited, time.Second, "virtual time")
	})
}

// A fair mutex whose lock was deleted is free, and its first waiter crashed before anybody asked.
// As soon as an operator has removed that waiter, the next one has the lock.
func TestAfterARemovalAFreeLockGoesToTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		crashed := v.Another()
		long := redlatch.WithHeartbeat(time.Minute)
		operator := stage.LocksOn(t, v.Client(), long).FairMutex("door")
		_, err := operator.Lock(t.Context())
		require.NoError(t, err)
		first, failed := stage.LocksOn(t, crashed.Client(), long).FairMutex("door"), make(chan error, 1)
		go func() { _, err := first.Lock(t.Context()); failed <- err }()
		synctest.Wait()
		time.Sleep(time.Second)
		got := make(chan *lock.Hold, 1)
		next := stage.LocksOn(t, v.Client(), long).FairMutex("door")
		go func() {
			h, err := next.Lock(t.Context())
			require.NoError(t, err)
			got <- h
		}()
		time.Sleep(time.Second)
		crashed.Down()
		waiters, length, err := operator.Queue(t.Context(), 0, 2)
		require.NoError(t, err)
		require.Equal(t, 2, length)
		require.NoError(t, v.Client().Del(t.Context(), "door").Err())
		removed, err := operator.RemoveWaiter(t.Context(), waiters[0].ID)
		require.NoError(t, err)
		require.True(t, removed)
		before := time.Now()
		h := <-got
		waited := time.Since(before)
		require.NoError(t, h.Unlock(t.Context()))
		crashed.Up()
		require.ErrorIs(t, <-failed, redlatch.ErrRemoved)
		require.Less(t, waited, time.Second, "virtual time")
	})
}

// An answer that comes late is still the answer: the command is not sent again, because the answer
// to a copy would not say what the first command did.
func TestOperatorsWaitForAnAnswerThatIsLate(t *testing.T) {
	const late = 500 * time.Millisecond // longer than a caller that sends by itself waits
	direct := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	for name, play := range map[string]func(t *testing.T, s *stage.Scene, other *redlatch.Client, slow func()){
		"a mutex": func(t *testing.T, s *stage.Scene, other *redlatch.Client, slow func()) {
			h, err := other.Mutex("door").Lock(t.Context())
			require.NoError(t, err)
			slow()
			ended, err := s.Locks.Mutex("door").ForceRelease(t.Context(), h.ID())
			require.NoError(t, err)
			require.Equal(t, h.ID(), ended)
		},
		"a fair mutex": func(t *testing.T, s *stage.Scene, other *redlatch.Client, slow func()) {
			h, err := other.FairMutex("door").Lock(t.Context())
			require.NoError(t, err)
			slow()
			ended, err := s.Locks.FairMutex("door").ForceRelease(t.Context(), h.ID())
			require.NoError(t, err)
			require.Equal(t, h.ID(), ended)
		},
		"a permit": func(t *testing.T, s *stage.Scene, other *redlatch.Client, slow func()) {
			p, err := other.Semaphore("door", 3).Acquire(t.Context(), 2)
			require.NoError(t, err)
			slow()
			units, err := s.Locks.Semaphore("door", 3).ForceRelease(t.Context(), p.ID())
			require.NoError(t, err)
			require.Equal(t, 2, units)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubbleOf(t, direct)
				other := stage.LocksOn(t, s.Direct)
				stage.WarmUp(t, s.Locks)
				play(t, s, other, func() {
					synctest.Wait()
					s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.DelayReply(late)})
				})
			})
		})
	}
}
