package reentrant_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

func TestOwnerReentersAndOthersDoNot(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a := s.Actor()
		chain := redlatch.WithOwner(a.Ctx)
		outer, err := a.Mutex("door").Lock(chain)
		require.NoError(s, err)
		for name, ctx := range map[string]context.Context{"chain": chain, "hold": outer.Context()} {
			inner, err := a.Mutex("door").TryLock(ctx)
			require.NoError(s, err, name)
			require.Equal(s, outer.Fence(), inner.Fence())
			require.Equal(s, outer.ID(), inner.ID())
			s.Unlock(inner)
		}
		strangers := map[string]context.Context{
			"no chain": a.Ctx, "a new chain": redlatch.WithOwner(a.Ctx), "one taken out of the chain": redlatch.WithOwner(chain),
		}
		for name, ctx := range strangers {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = a.Mutex("door").TryLock(ctx)
			}()
			s.Receive(done, "TryLock returns")
			require.ErrorIs(s, err, redlatch.ErrNotAcquired, name)
		}
		s.Unlock(outer)
		s.NothingRemains()
	})
}

func TestHoldsAreReleasedInAnyOrder(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			chain := redlatch.WithOwner(a.Ctx)
			var holds []*lock.Hold
			for range order {
				h, err := a.Mutex("door").Lock(chain)
				require.NoError(t, err)
				holds = append(holds, h)
			}
			for released, i := range order {
				info, err := b.Mutex("door").Inspect(b.Ctx)
				require.NoError(t, err)
				require.Equal(t, len(order)-released, info.Holds, "%v", order)
				_, err = b.Mutex("door").TryLock(b.Ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%v", order)

				ctx := holds[i].Context()
				s.Unlock(holds[i])
				require.Error(t, ctx.Err())
				require.ErrorIs(t, holds[i].Unlock(a.Ctx), redlatch.ErrNotHeld)
			}
			s.Unlock(b.Lock("door"))
		}
	})
}

// Two goroutines of one chain find the lock taken. Both get it when it is free, because the second
// re-enters. If it waited for the right to ask, it would wait for the first.
func TestGoroutinesOfOneChainDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"another goroutine", "another process"} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a, b := s.Actor(), s.Actor()
				first := a
				if holder == "another process" {
					first = b
				}
				hold := first.Lock("door")
				chain := redlatch.WithOwner(a.Ctx)
				one, stranger, two := a.Begin(chain, "door"), (*stage.Asking)(nil), (*stage.Asking)(nil)
				synctest.Wait()
				stranger = a.Begin(a.Ctx, "door")
				synctest.Wait()
				two = a.Begin(chain, "door")
				synctest.Wait()
				s.Unlock(hold)
				h1, h2 := one.Got(), two.Got() // neither has unlocked
				require.Equal(t, h1.Fence(), h2.Fence())
				require.True(t, stranger.Pending())
				s.Unlock(h1)
				require.True(t, stranger.Pending())
				s.Unlock(h2)
				s.Unlock(stranger.Got())
			})
		})
	}
}

func TestGoroutinesOfOneChainUnderLoad(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		const chains, goroutines, rounds = 3, 4, 15
		a := s.Actor()
		var inside atomic.Int64 // for each hold: the number of its chain times 1000, plus 1
		var all sync.WaitGroup
		for chain := range chains {
			ctx := redlatch.WithOwner(a.Ctx)
			mark := int64(chain+1) * 1000
			for range goroutines {
				all.Go(func() {
					for range rounds {
						h, err := a.Mutex("door").Lock(ctx)
						if err != nil {
							s.Errorf("lock: %v", err)
							return
						}
						now := inside.Add(mark + 1)
						if n := now % 1000; now != n*(mark+1) {
							s.Errorf("two chains inside: %d", now)
						}
						inside.Add(-mark - 1)
						if err := h.Unlock(ctx); err != nil {
							s.Errorf("unlock: %v", err)
						}
					}
				})
			}
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		s.Receive(done, "all have had their turns")
		s.NothingRemains()
	})
}

func TestWaitersOfOneClientAreServedInOrder(t *testing.T) {
	t.Parallel()
	for _, handoffs := range []time.Duration{0, 3 * time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint("for ", handoffs), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				const waiters = 20
				a := s.Actor(redlatch.WithLocalHandoffTime(handoffs))
				hold := a.Lock("door")
				order := make(chan int, waiters)
				var released sync.WaitGroup
				for i := range waiters {
					w := a.Begin(a.Ctx, "door")
					synctest.Wait() // it queues before the next comes
					released.Go(func() {
						h := w.Got()
						order <- i
						time.Sleep(time.Millisecond)
						s.Unlock(h)
					})
				}
				s.Unlock(hold)
				for i := range waiters {
					require.Equal(t, i, <-order)
				}
				released.Wait() // the client is closed at the end
			})
		})
	}
}

// While other processes wait, the goroutines of a process hand the lock to each other for the time
// that is set, and not for longer. Each process gets the lock again.
func TestLocalHandoffTimeBoundsHowLongAProcessKeepsTheLock(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const turns, waiters = 3, 30
		var mu sync.Mutex
		var grants []int
		const handoffs = turns * time.Millisecond // each turn takes one
		clients := []*stage.Actor{s.Actor(redlatch.WithLocalHandoffTime(handoffs)), s.Actor(redlatch.WithLocalHandoffTime(handoffs))}
		gatekeeper := s.Actor()
		hold := gatekeeper.Lock("door")
		var all sync.WaitGroup
		for i, c := range clients {
			for range waiters {
				all.Go(func() {
					h, err := c.Mutex("door").Lock(c.Ctx)
					if err != nil {
						s.Errorf("lock: %v", err)
						return
					}
					mu.Lock()
					grants = append(grants, i)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if err := h.Unlock(c.Ctx); err != nil {
						s.Errorf("unlock: %v", err)
					}
				})
			}
		}
		synctest.Wait()
		s.Unlock(hold)
		all.Wait()
		require.Len(t, grants, 2*waiters)
		left := []int{waiters, waiters}
		for i, run := 0, 0; i < len(grants); i++ {
			if i > 0 && grants[i] == grants[i-1] {
				run++
			} else {
				run = 1
			}
			left[grants[i]]--
			if left[1-grants[i]] > 0 {
				require.LessOrEqual(t, run, turns, "grants %v", grants[:i+1])
			}
		}
	})
}

// A waiter that gives up leaves its place to the next at every stage, and leaves nothing else.
func TestWaiterThatGivesUpPassesTheLocalLockOn(t *testing.T) {
	t.Parallel()
	cases := map[string]func(s *stage.Stage, a, b *stage.Actor, slow *stage.SlowScript) (next *stage.Asking){
		"queued": func(s *stage.Stage, a, _ *stage.Actor, _ *stage.SlowScript) *stage.Asking {
			hold := a.Lock("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			gone := a.Begin(ctx, "door")
			synctest.Wait()
			next := a.Begin(a.Ctx, "door")
			synctest.Wait()
			cancel()
			s.Withdrawn(gone)
			s.Unlock(hold)
			return next
		},
		"chosen, with the hand-over on its way": func(s *stage.Stage, a, _ *stage.Actor, slow *stage.SlowScript) *stage.Asking {
			hold := a.Lock("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			gone := a.Begin(ctx, "door")
			synctest.Wait()
			next := a.Begin(a.Ctx, "door")
			synctest.Wait()
			slow.Arm()
			unlocked := make(chan error, 1)
			go func() { unlocked <- hold.Unlock(a.Ctx) }()
			<-slow.Reached
			cancel()
			s.Withdrawn(gone)
			close(slow.Gate)
			require.NoError(s, <-unlocked)
			return next
		},
		"leading, with its question answered too late": func(s *stage.Stage, a, b *stage.Actor, slow *stage.SlowScript) *stage.Asking {
			hold := b.Lock("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			gone := a.Begin(ctx, "door").Asked(2)
			synctest.Wait()
			next := a.Begin(a.Ctx, "door")
			synctest.Wait()
			slow.Arm()
			s.Unlock(hold)
			<-slow.Reached // it has the lock and does not know it
			cancel()
			require.ErrorIs(s, gone.Failed(), context.Canceled)
			close(slow.Gate)
			return next
		},
		"leading, asleep": func(s *stage.Stage, a, b *stage.Actor, _ *stage.SlowScript) *stage.Asking {
			hold := b.Lock("door")
			ctx, cancel := context.WithCancel(a.Ctx)
			gone := a.Begin(ctx, "door").Asked(2)
			synctest.Wait()
			next := a.Begin(a.Ctx, "door")
			synctest.Wait()
			cancel()
			s.Withdrawn(gone)
			s.Unlock(hold)
			return next
		},
	}
	for when, play := range cases {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a, b := s.Actor(), s.Actor()
				slow := stage.NewSlowScript()
				a.Redis.AddHook(slow)
				start := time.Now()
				next := play(s, a, b, slow)
				h := next.Got()
				require.Less(t, time.Since(start), time.Minute, "it was not left to a lease or a poll")
				s.Unlock(h)
				s.NothingRemains()

				before := a.Scripts.Load()
				s.Unlock(a.Lock("door"))
				require.Equal(t, int64(2), a.Scripts.Load()-before, "nobody is in the way any more")
			})
		})
	}
}

// The lock, or the right to ask, comes at the moment at which the waiter gives up. One of the two
// wins, and the next waiter gets the lock either way.
func TestGivingUpAtTheMomentOfTheHandOver(t *testing.T) {
	t.Parallel()
	for _, handoffs := range []time.Duration{0, time.Hour} { // the right to ask comes, or the lock comes
		t.Run(fmt.Sprint("for ", handoffs), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a := s.Actor(redlatch.WithLocalHandoffTime(handoffs))
				start := time.Now()
				for range 150 {
					hold := a.Lock("door")
					ctx, cancel := context.WithCancel(a.Ctx)
					gone := a.Begin(ctx, "door")
					synctest.Wait()
					next := a.Begin(a.Ctx, "door")
					synctest.Wait()
					both := make(chan struct{})
					go func() { <-both; cancel() }()
					unlocked := make(chan error, 1)
					go func() { <-both; unlocked <- hold.Unlock(a.Ctx) }()
					close(both)
					require.NoError(t, <-unlocked)
					s.Receive(gone.Done, "Lock returns")
					if gone.Err == nil {
						s.Unlock(gone.Hold)
					} else {
						require.ErrorIs(t, gone.Err, context.Canceled)
					}
					s.Unlock(next.Got())
				}
				require.Less(t, time.Since(start), time.Hour)
				s.NothingRemains()
			})
		})
	}
}

// A process pays two commands for a lock that nobody else wants: an acquire and a release. Each
// hand-over between its goroutines costs one more command.
func TestHandOverInsideAProcessIsOneCommand(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const waiters = 20
		a := s.Actor(redlatch.WithLocalHandoffTime(time.Hour))
		before := a.Scripts.Load()
		s.Unlock(a.Lock("door"))
		require.Equal(s, int64(2), a.Scripts.Load()-before, "lock and unlock")

		before = a.Scripts.Load()
		hold := a.Lock("door")
		var waits []*stage.Asking
		for range waiters {
			waits = append(waits, a.Begin(a.Ctx, "door"))
		}
		synctest.Wait()
		fences := []int64{hold.Fence()}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, w := range waits {
			all.Go(func() {
				<-w.Done
				if w.Err != nil {
					s.Errorf("lock: %v", w.Err)
					return
				}
				mu.Lock()
				fences = append(fences, w.Hold.Fence())
				mu.Unlock()
				if err := w.Hold.Unlock(a.Ctx); err != nil {
					s.Errorf("unlock: %v", err)
				}
			})
		}
		s.Unlock(hold)
		all.Wait()
		require.Equal(s, int64(1+waiters+1), a.Scripts.Load()-before)
		for i := range fences[1:] {
			require.Less(s, fences[i], fences[i+1])
		}
	})
}

// The lease of a lock that is handed over is that of the waiter. Redis would end a shorter one
// while the waiter trusts its hold, and keep a longer one after a crash.
func TestAHandoffHasTheLeaseOfTheWaiter(t *testing.T) {
	t.Parallel()
	for name, leases := range map[string][2]time.Duration{
		"longer": {2 * time.Second, time.Minute}, "shorter": {time.Minute, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithLocalHandoffTime(time.Hour))
				first := stage.MustLock(t, t.Context(), s.Locks.Mutex("door", redlatch.WithLease(leases[0])))
				waiter := s.Locks.Mutex("door", redlatch.WithLease(leases[1]))
				handed := make(chan *lock.Hold)
				go func() { handed <- stage.MustLock(t, t.Context(), waiter) }()
				synctest.Wait()
				transfer := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Action: redistest.DelayReply(0)})
				s.Unlock(first)
				hold := <-handed
				require.Equal(t, 1, transfer.Bites(), "transfers")
				info, err := waiter.Inspect(t.Context())
				require.NoError(t, err)
				require.Equal(t, leases[1], info.Remaining)
				s.Unlock(hold)
			})
		})
	}
}

// After the time of its local handoffs, the process releases the lock and asks again. Then it has
// as much time again. Each handoff costs one command, however often that happens.
func TestLocalHandoffTimeBeginsAnewWithEachGrantOfRedis(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const turns, rounds = 3, 4
		a := s.Actor(redlatch.WithLocalHandoffTime(turns * time.Millisecond))
		before := a.Scripts.Load()
		hold := a.Lock("door")
		var waits []*stage.Asking
		for range turns*rounds - 1 {
			waits = append(waits, a.Begin(a.Ctx, "door"))
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		s.Unlock(hold)
		for _, w := range waits {
			h := w.Got()
			time.Sleep(time.Millisecond)
			s.Unlock(h)
		}
		const commands = 1 + (turns - 1) + 1 // an acquire, the transfers, a release
		require.Equal(t, int64(rounds*commands), a.Scripts.Load()-before)
	})
}

// The server refuses to hand over the lock, so the process releases it instead. The chosen waiter
// is still the first.
func TestARefusedHandOverKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		first := s.Lock(t.Context())
		var holds []<-chan *lock.Hold
		for range 3 {
			hold, _ := s.Begin(t.Context())
			holds = append(holds, hold)
		}
		refuse := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.Refuse("NOPERM no")})
		s.Unlock(first)
		require.Equal(t, 1, refuse.Bites())
		for i, hold := range holds {
			h := s.Soon(hold)
			require.NotNil(t, h, "waiter %d is overtaken", i)
			s.Unlock(h)
		}
		s.NothingLeft()
	})
}

func TestWaitForOneselfIsLoggedOnce(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const after = 10 * time.Second
		a := s.Actor(redlatch.WithSelfDeadlockWarning(after))
		outer := a.LockHere("door")
		ctx, cancel := context.WithCancel(a.Ctx)
		waits := a.Begin(ctx, "door") // not outer.Context()
		time.Sleep(after - time.Millisecond)
		synctest.Wait()
		require.Empty(t, a.Log.Lines())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, a.Log.Lines(), 1)
		line := a.Log.Lines()[0]
		require.Contains(t, line, "lock=door")
		require.Contains(t, line, fmt.Sprintf("held_since=%s", outer.Site))
		require.Contains(t, line, "waiting_at=")
		require.Contains(t, line, "pass on the context of its hold")
		require.NotContains(t, line, "the same context", "neither call was under a lock")
		require.NotContains(t, strings.SplitN(line, "waiting_at=", 2)[1], "/reentrant/")
		time.Sleep(10 * after)
		synctest.Wait()
		require.Len(t, a.Log.Lines(), 1, "once")
		cancel()
		s.Withdrawn(waits)
		s.Unlock(outer.Hold)
	})
}

// This is the most common way to wait for oneself: the holder goes on with the context that it
// locked with.
func TestWaitForOneselfWithTheContextOfTheLockCallIsNamed(t *testing.T) {
	stage.OnBothKinds(t, func(r *stage.Reentry) {
		m := r.Mutex("inner")
		err := r.Mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			h, err := m.Lock(ctx)
			require.NoError(r, err)
			defer r.Unlock(h)
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err = m.Lock(bounded) // not h.Context()
			require.ErrorIs(r, err, redlatch.ErrNotAcquired)
			return nil
		})
		require.NoError(r, err)
		require.Len(r, r.Logbook.Lines(), 1)
		require.Contains(r, r.Logbook.Lines()[0], "both calls got the same context")
		require.Contains(r, r.Logbook.Lines()[0], "lock=inner")
	})
}

// One wait gets one warning. The waiter first waits in the client's own queue, behind a hold of the
// same client. Then it is the first there, behind another hold. (That hold comes by TryLock, which
// may get ahead, after the lock was removed by hand and by another process.)
func TestWaitForOneselfIsLoggedOnceQueuedAndLeading(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const after = 10 * time.Second
		a, b := s.Actor(redlatch.WithSelfDeadlockWarning(after)), s.Actor()
		first := a.Lock("door")
		ctx, cancel := context.WithCancel(a.Ctx)
		waits := a.Begin(ctx, "door")
		time.Sleep(2 * after)
		require.Len(t, a.Log.Lines(), 1, "queued")

		_, err := a.Mutex("door").ForceRelease(a.Ctx, "")
		require.NoError(t, err)
		other := b.Lock("door")
		require.ErrorIs(t, first.Unlock(a.Ctx), redlatch.ErrLost)
		s.Settle() // the waiter is the first, and has asked
		require.NoError(t, s.Admin.Del(a.Ctx, "door").Err())
		second, err := a.Mutex("door").TryLock(a.Ctx)
		require.NoError(t, err)
		time.Sleep(10 * after)
		synctest.Wait()
		require.True(t, waits.Pending())
		require.Len(t, a.Log.Lines(), 1, "once, leading too")
		cancel()
		require.Error(t, waits.Failed())
		s.Unlock(second)
		require.ErrorIs(t, other.Unlock(b.Ctx), redlatch.ErrLost)
	})
}

// Waiting for another process is no reason to warn.
func TestWaitForOthersIsNotLogged(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(redlatch.WithSelfDeadlockWarning(time.Second)), s.Actor()
		hold := b.Lock("door")
		waits := a.Begin(a.Ctx, "door")
		time.Sleep(time.Minute)
		s.Unlock(hold)
		s.Unlock(waits.Got())
		require.Empty(t, a.Log.Lines())
	})
}

// LockHere locks a mutex, and says where.

// NewSlowScript makes a hook that delays nothing yet.

// Arm delays the answer of the next script.

// Two calls of one chain run at the same time. The slower one finds the lock taken by its own
// chain, and re-enters it.
func TestATryThatFindsItsOwnChainReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Unlock(s.Lock(context.Background())) // the client learns the server's clock
		chain := redlatch.WithOwner(context.Background())
		slow := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.DelayRequest(50 * time.Millisecond)})
		slower := make(chan error, 1)
		var second *lock.Hold
		go func() {
			var err error
			second, err = s.Mutex.TryLock(chain)
			slower <- err
		}()
		slow.Await(1)
		first, err := s.Mutex.TryLock(chain)
		require.NoError(t, err)
		require.NoError(t, <-slower)
		require.Equal(t, first.ID(), second.ID())
		s.Unlock(second)
		s.Unlock(first)
		s.NothingLeft()
	})
}

// stalled is a context whose Err blocks until its gate opens, for a waiter in the local queue that
// gives up. So the waiter stands still between its decision and its error, as a goroutine does that
// does not run.
type stalled struct {
	context.Context
	gate chan struct{}
}

func (c stalled) Err() error {
	err := c.Context.Err()
	stack := make([]byte, 4096)
	if err != nil && strings.Contains(string(stack[:runtime.Stack(stack, false)]), "awaitHandoff") {
		<-c.gate
	}
	return err
}

// A waiter gives up, and gets a handoff before its error is made. No caller has had the lock by
// that handoff, so no error names it as the holder.
func TestAWaiterThatGaveUpIsNotItsOwnHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLocalHandoffTime(time.Minute))
		held := s.Lock(t.Context())
		parent, cancel := context.WithCancel(t.Context())
		ctx := stalled{parent, make(chan struct{})}
		ended := make(chan error, 1)
		go func() { _, err := s.Mutex.Lock(ctx); ended <- err }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		go func() {
			synctest.Wait() // Unlock has come as far as it can
			close(ctx.gate)
		}()
		require.NoError(t, held.Unlock(t.Context()))
		var refused *redlatch.NotAcquiredError
		require.ErrorAs(t, <-ended, &refused)
		require.Contains(t, []string{"", held.ID()}, refused.Holder)
		s.Free()
	})
}
