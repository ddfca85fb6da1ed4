package redlatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: sequences of faults, each of which once broke the
// library in review. They play in virtual time.

// An Unlock that is tried again after its lock was forgotten locally leaves
// nothing behind.
func TestRetriedUnlockForgetsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		s.unlock(s.lock(context.Background()))
		time.Sleep(time.Second)
		// somebody elsewhere listens
		ps := s.direct.Subscribe(context.Background(), "redisson_lock__channel:{"+s.name+"}")
		_, err := ps.Receive(context.Background())
		require.NoError(t, err)
		defer ps.Close()
		h := s.lock(context.Background())
		f := s.proxy.Inject(redistest.Rule{Match: aLastOne, Action: redistest.CutRequest()})
		ctx, c := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err = h.Unlock(ctx)
		c()
		require.Error(t, err)
		time.Sleep(50 * time.Millisecond)
		f.Disarm()
		t.Log("err", err, "bites", f.Bites())
		err = h.Unlock(context.Background())
		t.Log("retry:", err)
		time.Sleep(time.Minute)
		require.Zero(t, redlatch.NamesInUse(s.locks))
	})
}

// A failed attempt that was made good is no outage to report later.
func TestOneLostReplyIsNoOutageForWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		outer := s.lock(context.Background())
		f := s.cut(aReentry, 1)
		inner := s.lock(outer.Context())
		require.Equal(t, 1, f.Bites())
		time.Sleep(time.Minute)
		ctx, c := context.WithTimeout(context.Background(), time.Second)
		defer c()
		_, err := s.mu.Lock(ctx)
		s.unlock(inner)
		s.unlock(outer)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "got %v", err)
	})
}

// Holders are told that the client has closed, also when it could not release.
func TestCloseThatTimesOutTellsHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		s.proxy.Inject(redistest.Rule{Match: anyScript, Action: redistest.Swallow()})
		go func() { _, _ = s.mu.Lock(h.Context()) }()
		synctest.Wait()
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer c()
		begin := time.Now()
		err := s.locks.Close(ctx)
		t.Log(err, time.Since(begin))
		time.Sleep(time.Hour)
		select {
		case <-h.Lost():
		default:
			t.Error("Lost not closed, one hour after Close")
		}
		require.Error(t, h.Context().Err(), "context still alive")
	})
}

// A TryLock wins while a Lock of the same chain waits for Redis.
func TestLockDoesNotWaitForItsOwnChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		require.NoError(t, s.direct.HSet(context.Background(), s.name, "somebody:1", 1).Err())
		ctx := redlatch.WithOwner(context.Background())
		got := make(chan *lock.Hold, 1)
		go func() {
			h, err := s.mu.Lock(ctx)
			if err == nil {
				got <- h
			}
		}()
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, s.direct.Del(context.Background(), s.name).Err())
		h, err := s.mu.TryLock(ctx)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		select {
		case h2 := <-got:
			s.unlock(h2)
		default:
			t.Error("Lock of the same chain still waits after a minute")
		}
		s.unlock(h)
		s.locks.Close(context.Background())
	})
}

// A copy of the acquire is on its way while the lock is handed over.
func TestLateAcquireAfterAHandOverIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		direct := server.Client()
		client := server.Client(func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
		s := newScene(t, server.Proxy, client, direct)
		s.settle = synctest.Wait
		s.unlock(s.lock(context.Background()))
		kept := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.HoldBack()})
		first := s.lock(context.Background())
		require.Equal(t, 1, kept.Bites())
		second := s.wait()
		s.unlock(first)
		s.unlock(<-second)
		s.free()
		synctest.Wait() // the first clean-up has found nothing
		kept.Release()  // before its end
		require.Len(t, s.stored(), 1, "ghost expected now")
		time.Sleep(10 * time.Second)
		s.free()
	})
}

// The reply of a force release is lost, and the next holder must not pay.
func TestForceReleaseRunTwiceEndsOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		victim := s.lock(context.Background())
		other, err := redlatch.New(s.direct)
		require.NoError(t, err)
		defer other.Close(context.Background())
		second := make(chan *lock.Hold, 1)
		go func() {
			h, _ := other.Mutex(s.name).Lock(context.Background())
			second <- h
		}()
		time.Sleep(100 * time.Millisecond)
		f := s.proxy.Inject(redistest.Rule{Match: func(c []string) bool { return anyScript(c) && script(c, 1, 2) }, Times: 1, Action: redistest.CutReply()})
		who, err := s.mu.ForceRelease(context.Background(), "")
		t.Log(who, err, f.Bites())
		h := <-second
		_ = victim.Unlock(context.Background())
		time.Sleep(time.Second)
		require.NotEqual(t, h.Acquisition(), who, "ended somebody else")
		require.Len(t, s.stored(), 1, "the next holder's lock is gone")
	})
}

// An Unlock whose time ends behind a hung command of the same lock.
func TestUnlockBehindAHungCommandIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		f := s.proxy.Inject(redistest.Rule{Match: anyScript, Action: redistest.Swallow()})
		rctx, rc := context.WithCancel(h.Context())
		go func() {
			h2, err := s.mu.Lock(rctx)
			if err == nil {
				_ = h2.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h.Unlock(ctx)
		c()
		t.Log(err)
		rc()
		f.Disarm()
		time.Sleep(5 * time.Minute)
		require.Empty(t, s.stored(), "still held 5 minutes after Unlock")
		_ = h.Fence()
	})
}

// The subscriber is still shaking hands when the client closes.
func TestCloseKeepsToItsContextDuringAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		require.NoError(t, s.direct.HSet(context.Background(), s.name, "somebody:1", 1).Err())
		_, err := s.mu.TryLock(context.Background())
		require.Error(t, err)
		s.proxy.Inject(redistest.Rule{Match: redistest.Command("HELLO"), Action: redistest.Swallow()})
		go func() { _, _ = s.mu.Lock(context.Background()) }()
		time.Sleep(10 * time.Millisecond)
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer c()
		begin := time.Now()
		err = s.locks.Close(ctx)
		t.Log(err, time.Since(begin))
		require.Less(t, time.Since(begin), time.Second)
	})
}

// Handed over, reply lost, and removed by hand before the second try.
func TestHandOverThatWasDoneIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		first := s.lock(context.Background())
		second := s.wait()
		s.cut(aTransfer, 1)
		go func() {
			for len(s.stored()) == 0 || s.stored()[first.Acquisition()] != "" {
				time.Sleep(100 * time.Microsecond)
			}
			s.direct.Del(context.Background(), s.name)
		}()
		err := first.Unlock(context.Background())
		h := <-second
		s.unlock(h)
		require.NoError(t, err)
	})
}

type slowHook struct{ d time.Duration }

func (h slowHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h slowHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(h.d)
		err := next(ctx, cmd)
		time.Sleep(h.d)
		return err
	}
}

// A client far away asks too late each time, until the near ones step aside for
// longer.
func TestFarClientGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		near, far := server.Client(), server.Client()
		near.AddHook(slowHook{500 * time.Microsecond})
		far.AddHook(slowHook{20 * time.Millisecond})
		a, _ := redlatch.New(near, redlatch.WithTurns(2))
		b, _ := redlatch.New(far, redlatch.WithTurns(2))
		defer a.Close(context.Background())
		defer b.Close(context.Background())
		stop := make(chan struct{})
		var grants atomic.Int64
		for range 4 {
			go func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					h, err := a.Mutex("x").Lock(context.Background())
					if err != nil {
						return
					}
					grants.Add(1)
					time.Sleep(5 * time.Millisecond)
					_ = h.Unlock(context.Background())
				}
			}()
		}
		time.Sleep(time.Second)
		before := grants.Load()
		ctx, c := context.WithTimeout(context.Background(), 30*time.Second)
		defer c()
		h, err := b.Mutex("x").Lock(ctx)
		close(stop)
		require.NoError(t, err)
		_ = h.Unlock(context.Background())
		require.Less(t, grants.Load()-before, int64(60))
	})
}

// One connection hangs with a renewal on it; the release takes another.
func TestStuckRenewalDoesNotKeepUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		f := s.proxy.Inject(redistest.Rule{Match: aRenewal, Times: 1, Action: redistest.Swallow()})
		for f.Bites() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		begin := time.Now()
		dead, c := context.WithCancel(context.Background())
		c()
		err := h.Unlock(dead)
		t.Log(time.Since(begin), err)
		require.NoError(t, err, "Redis answers all other connections")
	})
}

// Entering again and again does not extend what is not to be extended.
func TestReentryIsNoWayAroundTheEndOfAHold(t *testing.T) {
	for name, opt := range map[string]redlatch.Option{"max": redlatch.WithMaxHold(10 * time.Second), "norenew": redlatch.WithoutRenewal()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t, opt, redlatch.WithLease(6*time.Second))
				h := s.lock(context.Background())
				for range 30 {
					time.Sleep(2 * time.Second)
					h2, err := s.mu.Lock(h.Context())
					if err != nil {
						t.Log(err)
						return
					}
					s.unlock(h2)
				}
				t.Error("held for a minute", h.Trusted())
			})
		})
	}
}

// The hold counts as released, and the number in Redis follows.
func TestInnerUnlockThatFailedIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		h2 := s.lock(h.Context())
		f := s.proxy.Inject(redistest.Rule{Match: anInnerOne, Action: redistest.Refuse("LOADING x")})
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h2.Unlock(ctx)
		c()
		t.Log(err)
		f.Disarm()
		time.Sleep(time.Minute)
		t.Log(s.stored())
		require.Equal(t, "1", s.stored()[h.Acquisition()])
		require.ErrorIs(t, h2.Unlock(context.Background()), redlatch.ErrNotHeld)
	})
}

// Nothing was executed, the lease ended, and another has the lock.
func TestRetriedUnlockAfterALossSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		f := s.proxy.Inject(redistest.Rule{Match: anyScript, Action: redistest.Refuse("LOADING x")})
		ctx, c := context.WithTimeout(context.Background(), 100*time.Millisecond)
		err := h.Unlock(ctx)
		c()
		t.Log(err)
		time.Sleep(2 * time.Minute)
		s.free() // expired
		require.NoError(t, s.direct.HSet(context.Background(), s.name, "somebody:1", 1).Err())
		f.Disarm()
		err = h.Unlock(context.Background())
		t.Log("again:", err)
		require.ErrorIs(t, err, redlatch.ErrLost)
	})
}

// What a hand-over is refused, a release may be granted.
func TestRefusedHandOverReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		first := s.lock(context.Background())
		ctx, c := context.WithCancel(context.Background())
		defer c()
		go func() { _, _ = s.mu.Lock(ctx) }()
		synctest.Wait()
		require.NoError(t, s.direct.Set(context.Background(), "redisson_lock_token:{"+s.name+"}", "abc", 0).Err())
		begin := time.Now()
		err := first.Unlock(context.Background())
		t.Log(time.Since(begin), err)
		require.NoError(t, err)
		require.Less(t, time.Since(begin), time.Second)
	})
}

// The server's clock was set; the command is sent again and succeeds.
func TestVoidCommandIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// clock steps forward while held; re-entry is void once; a waiter then reports an outage
		server := redistest.Bubble(t)
		s := newScene(t, server.Proxy, server.Client(), server.Client())
		s.settle = synctest.Wait
		h := s.lock(context.Background())
		server.Server.SetTime(time.Now().Add(5 * time.Second))
		h2, err := s.mu.Lock(h.Context())
		require.NoError(t, err)
		ctx, c := context.WithTimeout(context.Background(), time.Second)
		defer c()
		_, err = s.mu.Lock(ctx)
		s.unlock(h2)
		s.unlock(h)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	})
}

// The deadline hits a question that is under way, on a lock that is held.
func TestDeadlineDuringAQuestionIsContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		client := server.Client()
		s := newScene(t, server.Proxy, client, server.Client(), redlatch.WithPoll(40*time.Millisecond))
		require.NoError(t, s.direct.HSet(context.Background(), s.name, "somebody:1", 1).Err())
		client.AddHook(slowHook{10 * time.Millisecond})
		bad := 0
		for i := range 100 {
			ctx, c := context.WithTimeout(context.Background(), time.Second+time.Duration(i)*time.Millisecond)
			h, err := s.mu.Lock(ctx)
			c()
			require.Nil(t, h)
			if !errors.Is(err, redlatch.ErrNotAcquired) {
				bad++
				if bad == 1 {
					t.Log(err)
				}
			}
		}
		require.Zero(t, bad, "of 100")
	})
}
