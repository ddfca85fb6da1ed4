package reentrant_test

import (
	"context"
	"errors"
	"fmt"
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

// The goal of this file: sequences of faults. Each of them once broke the library in a review. They
// run in virtual time.

// An Unlock that is retried after the client forgot the lock leaves nothing behind.
func TestRetriedUnlockForgetsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Unlock(s.Lock(context.Background()))
		time.Sleep(time.Second)
		// somebody elsewhere listens
		ps := s.Direct.Subscribe(context.Background(), "redisson_lock__channel:{"+s.Name+"}")
		_, err := ps.Receive(context.Background())
		require.NoError(t, err)
		defer ps.Close()
		h := s.Lock(context.Background())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Action: redistest.CutRequest()})
		ctx, c := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err = h.Unlock(ctx)
		c()
		require.Error(t, err)
		time.Sleep(50 * time.Millisecond)
		f.Disarm()
		require.NotZero(t, f.Bites())
		s.Unlock(h)
		time.Sleep(time.Minute)
		require.Zero(t, stage.NamesInUse(s.Locks))
	})
}

// If a retry made up for a failed attempt, later calls report no outage.
func TestOneLostReplyIsNoOutageForWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(context.Background())
		f := s.Cut(stage.AReentry, 1)
		inner := s.Lock(outer.Context())
		require.Equal(t, 1, f.Bites())
		time.Sleep(time.Minute)
		ctx, c := context.WithTimeout(context.Background(), time.Second)
		defer c()
		_, err := s.Mutex.Lock(ctx)
		s.Unlock(inner)
		s.Unlock(outer)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "got %v", err)
	})
}

// Holders are notified that the client has closed, also if it could not release.
func TestCloseThatTimesOutNotifiesHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Swallow()})
		go func() { _, _ = s.Mutex.Lock(h.Context()) }()
		synctest.Wait()
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer c()
		require.ErrorIs(t, s.Locks.Close(ctx), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		select {
		case <-h.Lost():
		default:
			t.Error("Lost not closed, one hour after Close")
		}
		require.Error(t, h.Context().Err(), "context still alive")
	})
}

// A TryLock gets the lock while a Lock of the same chain waits for Redis.
func TestLockDoesNotWaitForItsOwnChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		require.NoError(t, s.Direct.HSet(context.Background(), s.Name, "somebody:1", 1).Err())
		ctx := redlatch.WithOwner(context.Background())
		got := make(chan *lock.Hold, 1)
		go func() {
			h, err := s.Mutex.Lock(ctx)
			if err == nil {
				got <- h
			}
		}()
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, s.Direct.Del(context.Background(), s.Name).Err())
		h, err := s.Mutex.TryLock(ctx)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		select {
		case h2 := <-got:
			s.Unlock(h2)
		default:
			t.Error("Lock of the same chain still waits after a minute")
		}
		s.Unlock(h)
		s.Locks.Close(context.Background())
	})
}

// A copy of the acquire is in flight while the lock is handed over.
func TestLateAcquireAfterAHandOverIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		direct := server.Client()
		client := server.Client(func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
		s := stage.NewScene(t, server.Proxy, client, direct)
		s.Settle = synctest.Wait
		s.Unlock(s.Lock(context.Background()))
		kept := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.HoldBack()})
		first := s.Lock(context.Background())
		require.Equal(t, 1, kept.Bites())
		second := s.Wait()
		s.Unlock(first)
		s.Unlock(<-second)
		s.Free()
		synctest.Wait() // the first clean-up has found nothing
		kept.Release()  // before its end
		require.Len(t, s.Stored(), 1, "ghost expected now")
		time.Sleep(10 * time.Second)
		s.Free()
	})
}

// The reply of a ForceRelease is lost, and the retry must not end the next holder.
func TestForceReleaseRunTwiceEndsOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		victim := s.Lock(context.Background())
		other, err := redlatch.New(s.Direct)
		require.NoError(t, err)
		defer other.Close(context.Background())
		second := make(chan *lock.Hold, 1)
		go func() {
			h, _ := other.Mutex(s.Name).Lock(context.Background())
			second <- h
		}()
		time.Sleep(100 * time.Millisecond)
		f := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/force_release"), Times: 1, Action: redistest.CutReply()})
		who, err := s.Mutex.ForceRelease(context.Background(), "")
		require.NoError(t, err)
		require.Equal(t, 1, f.Bites())
		h := <-second
		_ = victim.Unlock(context.Background())
		time.Sleep(time.Second)
		require.NotEqual(t, h.ID(), who, "ended somebody else")
		require.Len(t, s.Stored(), 1, "the next holder's lock is gone")
	})
}

// The time of an Unlock ends while it waits for a hung command of the same lock.
func TestUnlockBehindAHungCommandIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Swallow()})
		rctx, rc := context.WithCancel(h.Context())
		go func() {
			h2, err := s.Mutex.Lock(rctx)
			if err == nil {
				_ = h2.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h.Unlock(ctx)
		c()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rc()
		f.Disarm()
		time.Sleep(5 * time.Minute)
		require.Empty(t, s.Stored(), "still held 5 minutes after Unlock")
		_ = h.Fence()
	})
}

// The subscriber's handshake is not complete when the client closes.
func TestCloseKeepsToItsContextDuringAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		require.NoError(t, s.Direct.HSet(context.Background(), s.Name, "somebody:1", 1).Err())
		_, err := s.Mutex.TryLock(context.Background())
		require.Error(t, err)
		s.Proxy.Inject(redistest.Rule{Match: redistest.Command("HELLO"), Action: redistest.Swallow()})
		go func() { _, _ = s.Mutex.Lock(context.Background()) }()
		time.Sleep(10 * time.Millisecond)
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer c()
		begin := time.Now()
		require.ErrorIs(t, s.Locks.Close(ctx), context.DeadlineExceeded)
		require.Less(t, time.Since(begin), time.Second)
	})
}

// The lock was handed over, the reply was lost, and somebody removed the lock before the second
// attempt.
func TestHandOverThatWasDoneIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		first := s.Lock(context.Background())
		second := s.Wait()
		s.Cut(stage.ATransfer, 1)
		go func() {
			for len(s.Stored()) == 0 || s.Stored()[first.ID()] != "" {
				time.Sleep(100 * time.Microsecond)
			}
			s.Direct.Del(context.Background(), s.Name)
		}()
		err := first.Unlock(context.Background())
		h := <-second
		s.Unlock(h)
		require.NoError(t, err)
	})
}

// A command gets the answer that the lock is gone, and a late copy of the acquire grants it again.
// Nobody has it, so nobody may renew it.
func TestNothingLostIsRenewed(t *testing.T) {
	ctx := context.Background()
	finders := map[string]func(s *stage.Scene, outer *lock.Hold) error{
		"inner unlock": func(s *stage.Scene, outer *lock.Hold) error {
			inner := s.Lock(outer.Context())
			require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
			return inner.Unlock(ctx)
		},
		"re-entry": func(s *stage.Scene, outer *lock.Hold) error {
			require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
			_, err := s.Mutex.Lock(outer.Context())
			return err
		},
	}
	for name, find := range finders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				s.Unlock(s.Lock(ctx)) // the client learns the server's clock
				kept := s.Copies(stage.AnAcquire)
				outer := s.Lock(ctx)
				require.ErrorIs(t, find(s, outer), redlatch.ErrLost)
				require.False(t, outer.Trusted())
				require.Equal(t, []int64{1}, s.LetGo(kept), "the ghost must be there for the test to mean anything")
				time.Sleep(time.Minute)
				s.Free()
			})
		})
	}
}

type slowHook struct{ d time.Duration }

func (h slowHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h slowHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(h.d)
		err := next(ctx, cmds)
		time.Sleep(h.d)
		return err
	}
}
func (h slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(h.d)
		err := next(ctx, cmd)
		time.Sleep(h.d)
		return err
	}
}

// A client far away asks too late each time, until the near one yields for longer. It yields also
// if nobody of the near client requests the lock at the moment.
func TestFarClientGetsTheLock(t *testing.T) {
	for _, goroutines := range []int{1, 4} {
		t.Run(fmt.Sprint("near: ", goroutines), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { farClientGetsItsTurn(t, goroutines) })
		})
	}
}

func farClientGetsItsTurn(t *testing.T, goroutines int) {
	server := redistest.Bubble(t)
	near, far := server.Client(), server.Client()
	far.AddHook(slowHook{20 * time.Millisecond})
	a, _ := redlatch.New(near)
	b, _ := redlatch.New(far)
	defer b.Close(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer a.Close(context.Background())
	var grants atomic.Int64
	for range goroutines {
		all.Go(func() {
			for {
				h, err := a.Mutex("x").Lock(context.Background())
				if err != nil {
					return // closed
				}
				grants.Add(1)
				time.Sleep(5003 * time.Microsecond) // no attempt of the far one comes just when it is free
				_ = h.Unlock(context.Background())
			}
		})
	}
	time.Sleep(time.Second)
	before := grants.Load()
	ctx, c := context.WithTimeout(context.Background(), 5*time.Second)
	defer c()
	h, err := b.Mutex("x").Lock(ctx)
	require.NoError(t, err)
	_ = h.Unlock(context.Background())
	require.Less(t, grants.Load()-before, int64(60))
}

// One connection hangs with a renewal on it. The release uses another connection.
func TestStuckRenewalDoesNotKeepUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.ARenewal, Times: 1, Action: redistest.Swallow()})
		for f.Bites() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		dead, c := context.WithCancel(context.Background())
		c()
		require.NoError(t, h.Unlock(dead), "Redis answers all other connections")
	})
}

// Repeated re-entries do not extend a lease that must not be extended.
func TestReentryIsNoWayAroundTheEndOfAHold(t *testing.T) {
	for name, opt := range map[string]redlatch.Option{"max": redlatch.WithMaxHold(10 * time.Second), "norenew": redlatch.WithoutRenewal()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, opt, redlatch.WithLease(6*time.Second))
				h := s.Lock(context.Background())
				for range 30 {
					time.Sleep(2 * time.Second)
					h2, err := s.Mutex.Lock(h.Context())
					if err != nil {
						require.ErrorIs(t, err, redlatch.ErrLost)
						return
					}
					s.Unlock(h2)
				}
				t.Error("held for a minute", h.Trusted())
			})
		})
	}
}

// A re-entry begins before the maximum hold time is over, and its command is lost. The next attempt
// comes after that time, and extends nothing.
func TestAReentryThatTakesLongIsNoWayAroundTheEndOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, most = 3 * time.Second, time.Second
		s := stage.InBubble(t, redlatch.WithMaxHold(most), redlatch.WithLease(lease))
		s.Unlock(s.Lock(context.Background()))
		began := time.Now()
		h := s.Lock(context.Background())
		time.Sleep(most - 100*time.Millisecond)
		lost := s.Proxy.Inject(redistest.Rule{Match: stage.AReentry, Times: 1, Action: redistest.Swallow()})
		h2 := s.Lock(h.Context())
		require.NotZero(t, lost.Bites())
		require.Greater(t, time.Since(began), most)
		<-h2.Lost()
		require.LessOrEqual(t, time.Since(began), most+lease)
	})
}

// The hold counts as released, and the number in Redis follows later.
func TestInnerUnlockThatFailedIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		h2 := s.Lock(h.Context())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.AnInnerOne, Action: redistest.Refuse("LOADING x")})
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h2.Unlock(ctx)
		c()
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		f.Disarm()
		time.Sleep(time.Minute)
		require.Equal(t, "1", s.Stored()[h.ID()])
		require.ErrorIs(t, h2.Unlock(context.Background()), redlatch.ErrNotHeld)
	})
}

// The hold does not exist, and the number in Redis follows later.
func TestReentryThatFailedIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.AReentry, Action: redistest.CutReply()})
		ctx, c := context.WithTimeout(h.Context(), 100*time.Millisecond)
		_, err := s.Mutex.Lock(ctx)
		c()
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		require.NotZero(t, f.Bites())
		f.Disarm()
		time.Sleep(time.Minute)
		s.Holds(h, 1)
		s.Unlock(h)
	})
}

// No release was executed before the lease ended, and another client has the lock. The first Unlock
// came in time, so nothing was lost. The lock of the other client does not change.
func TestRetriedUnlockAfterTheLeaseEndedIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		f := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("LOADING x")})
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h.Unlock(ctx)
		c()
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		time.Sleep(2 * time.Minute)
		s.Free() // expired
		require.NoError(t, s.Direct.HSet(context.Background(), s.Name, "somebody:1", 1).Err())
		f.Disarm()
		require.NoError(t, h.Unlock(context.Background()))
		require.Equal(t, map[string]string{"somebody:1": "1"}, s.Stored())
	})
}

// If Redis refuses a hand-over, it may still accept a release.
func TestRefusedHandOverReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		first := s.Lock(context.Background())
		ctx, c := context.WithCancel(context.Background())
		defer c()
		go func() { _, _ = s.Mutex.Lock(ctx) }()
		synctest.Wait()
		require.NoError(t, s.Direct.Set(context.Background(), "redisson_lock_token:{"+s.Name+"}", "abc", 0).Err())
		begin := time.Now()
		s.Unlock(first)
		require.Less(t, time.Since(begin), time.Second)
	})
}

// If a server loads its data for a while, the client asks less and less often.
func TestALoadingServerIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		loading := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("LOADING Redis is loading")})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		// At least a quarter of a second apart, from the eighth attempt on.
		require.Less(t, loading.Bites(), 8+4*60)
		require.Greater(t, loading.Bites(), 60, "and no less often than each second")
	})
}

// Somebody set the server's clock. The client sends the command again, and it succeeds.
func TestVoidCommandIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The clock steps forward during a hold, and a re-entry is void once. A waiter must not
		// report an outage after that.
		server := redistest.Bubble(t)
		s := stage.NewScene(t, server.Proxy, server.Client(), server.Client())
		s.Settle = synctest.Wait
		h := s.Lock(context.Background())
		server.Server.SetTime(time.Now().Add(5 * time.Second))
		h2, err := s.Mutex.Lock(h.Context())
		require.NoError(t, err)
		ctx, c := context.WithTimeout(context.Background(), time.Second)
		defer c()
		_, err = s.Mutex.Lock(ctx)
		s.Unlock(h2)
		s.Unlock(h)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	})
}

// The deadline ends during an attempt for a lock that is held.
func TestDeadlineDuringAnAttemptIsContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		client := server.Client()
		s := stage.NewScene(t, server.Proxy, client, server.Client(), redlatch.WithPollInterval(40*time.Millisecond))
		require.NoError(t, s.Direct.HSet(context.Background(), s.Name, "somebody:1", 1).Err())
		client.AddHook(slowHook{10 * time.Millisecond})
		bad := 0
		for i := range 100 {
			ctx, c := context.WithTimeout(context.Background(), time.Second+time.Duration(i)*time.Millisecond)
			h, err := s.Mutex.Lock(ctx)
			c()
			require.Nil(t, h)
			if !errors.Is(err, redlatch.ErrNotAcquired) {
				bad++
				t.Error(err)
			}
		}
		require.Zero(t, bad, "of 100")
	})
}

// A waiter gives up while the holder before it releases the lock. Redis has done that, but nobody
// knows it yet.
func TestWhoIsBeingReleasedIsNotNamedAsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Times: 1, Action: redistest.DelayReply(time.Second)})
		unlocked := make(chan error, 1)
		go func() { unlocked <- h.Unlock(context.Background()) }()
		synctest.Wait()
		s.Free()
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer c()
		_, err := s.Mutex.Lock(ctx)
		var facts *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &facts)
		require.Empty(t, facts.Holder, "%v", err)
		require.NoError(t, <-unlocked)
	})
}

// The lock becomes free, and a waiter gets it by a command whose reply is lost. The client cannot
// ask again before the context ends. The error must not say that nothing changed.
func TestWaiterWithAnUnknownGrantDoesNotClaimThatNothingHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		require.NoError(t, s.Direct.HSet(context.Background(), s.Name, "somebody:1", 1).Err())
		ctx, c := context.WithTimeout(context.Background(), 10*time.Second)
		defer c()
		failed := make(chan error, 1)
		go func() {
			_, err := s.Mutex.Lock(ctx)
			failed <- err
		}()
		time.Sleep(time.Second) // it waits
		require.NoError(t, s.Direct.Del(context.Background(), s.Name).Err())
		cut := s.Cut(stage.AnAcquire, 1)
		s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Action: redistest.CutRequest()})
		err := <-failed
		require.Equal(t, 1, cut.Bites())
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.NothingLeft()
	})
}

// The same test for waiters in a queue in Redis. The lease of a crashed holder ends, and the
// waiter's own command grants the lock.
func TestWaiterInAQueueWithAnUnknownGrantDoesNotClaimThatNothingHappened(t *testing.T) {
	for kind, lock := range map[string]func(ctx context.Context, c *redlatch.Client) error{
		"fair mutex": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.FairMutex("door").Lock(ctx)
			return err
		},
		"semaphore": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.Semaphore("door", 1).Acquire(ctx, 1)
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithHeartbeat(time.Minute))
				holder := stage.LocksOn(t, s.Direct, redlatch.WithLease(2*time.Second), redlatch.WithoutRenewal())
				require.NoError(t, lock(context.Background(), holder))
				ctx, c := context.WithTimeout(context.Background(), 10*time.Second)
				defer c()
				failed := make(chan error, 1)
				go func() { failed <- lock(ctx, s.Locks) }()
				time.Sleep(time.Second) // it waits
				cut := s.Cut(stage.AnyScript, 1)
				outage := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.CutRequest()})
				err := <-failed
				require.Equal(t, 1, cut.Bites())
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				soon, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer c()
				require.ErrorIs(t, lock(soon, holder), redlatch.ErrNotAcquired, "it was granted")
				outage.Disarm()
				require.NoError(t, s.Locks.Close(context.Background()))
				require.NoError(t, lock(context.Background(), holder), "what was granted is given back")
			})
		})
	}
}

// asked calls a function when somebody first asks a context for a value. Lock does that for the
// owner, after it has checked that the client is open.
type asked struct {
	context.Context
	first func()
}

func (a *asked) Value(key any) any {
	if first := a.first; first != nil {
		a.first = nil
		first()
	}
	return a.Context.Value(key)
}

// A chain re-enters while its client closes, and gets ErrClosed. That also holds between the end of
// its holds and the release, which waits for a renewal that hangs. The call must not repeat the
// same check all that time, because in virtual time that lasts for ever.
func TestFair_ReentryWhileTheClientClosesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal))
		fair := s.Locks.FairMutex(s.Name)
		h, err := fair.Lock(context.Background())
		require.NoError(t, err)
		hangs := s.Proxy.Inject(redistest.Rule{Match: stage.ARenewal, Action: redistest.SilenceBoth()})
		hangs.Await(1)
		closed := make(chan error, 1)
		_, err = fair.Lock(&asked{h.Context(), func() {
			go func() { closed <- s.Locks.Close(context.Background()) }()
			time.Sleep(time.Millisecond)
		}})
		require.ErrorIs(t, err, redlatch.ErrClosed)
		require.NoError(t, <-closed)
		s.Free()
	})
}

// A waiter loses its place in the queue, and gives up while it asks for another. Its error still
// has what was known: its last place.
func TestAKnownPlaceIsReportedThoughTheNextAttemptFails(t *testing.T) {
	for kind, c := range map[string]struct {
		script  string
		queue   func(name string) string
		acquire func(ctx context.Context, locks *redlatch.Client, name string) error
	}{
		"fair mutex": {
			"fair/join", func(name string) string { return key.ForMutex(name).Queue },
			func(ctx context.Context, locks *redlatch.Client, name string) error {
				_, err := locks.FairMutex(name).Lock(ctx)
				return err
			},
		},
		"semaphore": {
			"semaphore/acquire", func(name string) string { return key.ForSemaphore(name).Queue },
			func(ctx context.Context, locks *redlatch.Client, name string) error {
				_, err := locks.Semaphore(name, 1).Acquire(ctx, 1)
				return err
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				require.NoError(t, c.acquire(context.Background(), s.Locks, s.Name))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				refused := make(chan error, 1)
				go func() { refused <- c.acquire(ctx, s.Locks, s.Name) }()
				synctest.Wait()
				require.EqualValues(t, 1, s.Direct.Del(context.Background(), c.queue(s.Name)).Val())
				silent := s.Proxy.Inject(redistest.Rule{
					Match:  func(cmd []string) bool { return lua.ScriptName(cmd) == c.script },
					Action: redistest.Swallow(),
				})
				silent.Await(1)
				cancel()
				var refusal *redlatch.NotAcquiredError
				require.ErrorAs(t, <-refused, &refusal)
				require.Equal(t, 1, refusal.Position)
				silent.Disarm()
				s.NothingLeft()
			})
		})
	}
}

// A re-entry or an inner Unlock was answered at its second attempt, while the first was still in
// flight. The client corrects the number of holds when the first has arrived.
func TestALateCopyLeavesTheNumberOfHoldsRight(t *testing.T) {
	cases := map[string]struct {
		match func([]string) bool
		late  func(s *stage.Scene, h *lock.Hold) // sends the late command
		holds int
	}{
		"re-entry": {stage.AReentry, func(s *stage.Scene, h *lock.Hold) {
			inner, err := s.Mutex.Lock(h.Context())
			require.NoError(s.T, err)
			s.Unlock(inner)
		}, 1},
		"inner unlock": {stage.AnInnerOne, func(s *stage.Scene, h *lock.Hold) {
			inner, err := s.Mutex.Lock(h.Context())
			require.NoError(s.T, err)
			s.Unlock(inner)
			_, err = s.Mutex.Lock(h.Context())
			require.NoError(s.T, err)
		}, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InHastyBubble(t)
				h := s.Lock(context.Background())
				kept := s.HoldBack(c.match)
				c.late(s, h)
				require.Equal(t, 1, kept.Bites())
				s.Settle()
				s.LetGo(kept)
				time.Sleep(5 * time.Second)
				s.Holds(h, c.holds)
				s.Unlock(h)
			})
		})
	}
}

// A hold that was unlocked has ended. It is not lost, whatever happens to the others.
func TestAnUnlockedHoldIsNotLostLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		outer := s.Lock(context.Background())
		inner, err := s.Mutex.Lock(outer.Context())
		require.NoError(t, err)
		asked := inner.Lost()
		s.Unlock(inner)
		require.NoError(t, s.Direct.Del(context.Background(), s.Name).Err())
		<-outer.Lost()
		for _, lost := range []<-chan struct{}{asked, inner.Lost()} {
			select {
			case <-lost:
				require.Fail(t, "it was unlocked, and not lost")
			default:
			}
		}
		require.ErrorIs(t, outer.Unlock(context.Background()), redlatch.ErrLost)
	})
}

// The client knows nothing of a handoff to a mutex with a longer lease, and Redis is away for
// longer than the lease of the mutex that hands it over. Then the client still releases what the
// waiter may have got.
func TestALostHandoffIsReleasedForTheLeaseOfTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLocalHandoffTime(time.Minute))
		h, err := s.Locks.Mutex("door", redlatch.WithLease(time.Second)).Lock(t.Context())
		require.NoError(t, err)
		long := s.Locks.Mutex("door", redlatch.WithLease(time.Minute))
		got := make(chan error, 1)
		go func() {
			next, err := long.Lock(t.Context())
			if err == nil {
				err = next.Unlock(t.Context())
			}
			got <- err
		}()
		synctest.Wait()
		lost := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/transfer"), Times: 1, Action: redistest.LoseReply()})
		bounded, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		outage := make(chan *redistest.Fault, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			outage <- s.Proxy.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.Swallow()})
		})
		require.ErrorIs(t, h.Unlock(bounded), redlatch.ErrIndeterminate)
		require.Equal(t, 1, lost.Bites())
		time.Sleep(7 * time.Second)
		(<-outage).Disarm()
		select {
		case err := <-got:
			require.NoError(t, err)
		case <-time.After(20 * time.Second):
			require.Fail(t, "nobody has released the lock")
		}
	})
}
