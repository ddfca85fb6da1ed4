package redlatch_test

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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

func TestOwnerReentersAndOthersDoNot(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		a := s.actor()
		chain := redlatch.WithOwner(a.ctx)
		outer, err := a.Mutex("door").Lock(chain)
		require.NoError(s, err)
		for name, ctx := range map[string]context.Context{"chain": chain, "hold": outer.Context()} {
			inner, err := a.Mutex("door").TryLock(ctx)
			require.NoError(s, err, name)
			require.Equal(s, outer.Fence(), inner.Fence())
			require.Equal(s, outer.ID(), inner.ID())
			s.unlock(inner)
		}
		strangers := map[string]context.Context{
			"no chain": a.ctx, "a new chain": redlatch.WithOwner(a.ctx), "one taken out of the chain": redlatch.WithOwner(chain),
		}
		for name, ctx := range strangers {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = a.Mutex("door").TryLock(ctx)
			}()
			s.receive(done, "TryLock returns")
			require.ErrorIs(s, err, redlatch.ErrNotAcquired, name)
		}
		s.unlock(outer)
		s.nothingRemains()
	})
}

func TestHoldsAreReleasedInAnyOrder(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			chain := redlatch.WithOwner(a.ctx)
			var holds []*lock.Hold
			for range order {
				h, err := a.Mutex("door").Lock(chain)
				require.NoError(t, err)
				holds = append(holds, h)
			}
			for released, i := range order {
				info, err := b.Mutex("door").Inspect(b.ctx)
				require.NoError(t, err)
				require.Equal(t, len(order)-released, info.Holds, "%v", order)
				_, err = b.Mutex("door").TryLock(b.ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%v", order)

				ctx := holds[i].Context()
				s.unlock(holds[i])
				require.Error(t, ctx.Err())
				require.ErrorIs(t, holds[i].Unlock(a.ctx), redlatch.ErrNotHeld)
			}
			s.unlock(b.lock("door"))
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
			inVirtualTime(t, func(s *stage) {
				a, b := s.actor(), s.actor()
				first := a
				if holder == "another process" {
					first = b
				}
				hold := first.lock("door")
				chain := redlatch.WithOwner(a.ctx)
				one, stranger, two := a.begin(chain, "door"), (*asking)(nil), (*asking)(nil)
				synctest.Wait()
				stranger = a.begin(a.ctx, "door")
				synctest.Wait()
				two = a.begin(chain, "door")
				synctest.Wait()
				s.unlock(hold)
				h1, h2 := one.got(), two.got() // neither has unlocked
				require.Equal(t, h1.Fence(), h2.Fence())
				require.True(t, stranger.pending())
				s.unlock(h1)
				require.True(t, stranger.pending())
				s.unlock(h2)
				s.unlock(stranger.got())
			})
		})
	}
}

func TestGoroutinesOfOneChainUnderLoad(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		const chains, goroutines, rounds = 3, 4, 15
		a := s.actor()
		var inside atomic.Int64 // for each hold: the number of its chain times 1000, plus 1
		var all sync.WaitGroup
		for chain := range chains {
			ctx := redlatch.WithOwner(a.ctx)
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
		s.receive(done, "all have had their turns")
		s.nothingRemains()
	})
}

func TestWaitersOfOneClientAreServedInOrder(t *testing.T) {
	t.Parallel()
	for _, handoffs := range []time.Duration{0, 3 * time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint("for ", handoffs), func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				const waiters = 20
				a := s.actor(redlatch.WithLocalHandoffTime(handoffs))
				hold := a.lock("door")
				order := make(chan int, waiters)
				var released sync.WaitGroup
				for i := range waiters {
					w := a.begin(a.ctx, "door")
					synctest.Wait() // it queues before the next comes
					released.Go(func() {
						h := w.got()
						order <- i
						time.Sleep(time.Millisecond)
						s.unlock(h)
					})
				}
				s.unlock(hold)
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
	inVirtualTime(t, func(s *stage) {
		const turns, waiters = 3, 30
		var mu sync.Mutex
		var grants []int
		const handoffs = turns * time.Millisecond // each turn takes one
		clients := []*actor{s.actor(redlatch.WithLocalHandoffTime(handoffs)), s.actor(redlatch.WithLocalHandoffTime(handoffs))}
		gatekeeper := s.actor()
		hold := gatekeeper.lock("door")
		var all sync.WaitGroup
		for i, c := range clients {
			for range waiters {
				all.Go(func() {
					h, err := c.Mutex("door").Lock(c.ctx)
					if err != nil {
						s.Errorf("lock: %v", err)
						return
					}
					mu.Lock()
					grants = append(grants, i)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if err := h.Unlock(c.ctx); err != nil {
						s.Errorf("unlock: %v", err)
					}
				})
			}
		}
		synctest.Wait()
		s.unlock(hold)
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
	cases := map[string]func(s *stage, a, b *actor, slow *slowScript) (next *asking){
		"queued": func(s *stage, a, _ *actor, _ *slowScript) *asking {
			hold := a.lock("door")
			ctx, cancel := context.WithCancel(a.ctx)
			gone := a.begin(ctx, "door")
			synctest.Wait()
			next := a.begin(a.ctx, "door")
			synctest.Wait()
			cancel()
			s.withdrawn(gone)
			s.unlock(hold)
			return next
		},
		"chosen, with the hand-over on its way": func(s *stage, a, _ *actor, slow *slowScript) *asking {
			hold := a.lock("door")
			ctx, cancel := context.WithCancel(a.ctx)
			gone := a.begin(ctx, "door")
			synctest.Wait()
			next := a.begin(a.ctx, "door")
			synctest.Wait()
			slow.arm()
			unlocked := make(chan error, 1)
			go func() { unlocked <- hold.Unlock(a.ctx) }()
			<-slow.reached
			cancel()
			s.withdrawn(gone)
			close(slow.gate)
			require.NoError(s, <-unlocked)
			return next
		},
		"leading, with its question answered too late": func(s *stage, a, b *actor, slow *slowScript) *asking {
			hold := b.lock("door")
			ctx, cancel := context.WithCancel(a.ctx)
			gone := a.begin(ctx, "door").asked(2)
			synctest.Wait()
			next := a.begin(a.ctx, "door")
			synctest.Wait()
			slow.arm()
			s.unlock(hold)
			<-slow.reached // it has the lock and does not know it
			cancel()
			require.ErrorIs(s, gone.failed(), context.Canceled)
			close(slow.gate)
			return next
		},
		"leading, asleep": func(s *stage, a, b *actor, _ *slowScript) *asking {
			hold := b.lock("door")
			ctx, cancel := context.WithCancel(a.ctx)
			gone := a.begin(ctx, "door").asked(2)
			synctest.Wait()
			next := a.begin(a.ctx, "door")
			synctest.Wait()
			cancel()
			s.withdrawn(gone)
			s.unlock(hold)
			return next
		},
	}
	for when, play := range cases {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				a, b := s.actor(), s.actor()
				slow := newSlowScript()
				a.rdb.AddHook(slow)
				start := time.Now()
				next := play(s, a, b, slow)
				h := next.got()
				require.Less(t, time.Since(start), time.Minute, "it was not left to a lease or a poll")
				s.unlock(h)
				s.nothingRemains()

				before := a.scripts.Load()
				s.unlock(a.lock("door"))
				require.Equal(t, int64(2), a.scripts.Load()-before, "nobody is in the way any more")
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
			inVirtualTime(t, func(s *stage) {
				a := s.actor(redlatch.WithLocalHandoffTime(handoffs))
				start := time.Now()
				for range 150 {
					hold := a.lock("door")
					ctx, cancel := context.WithCancel(a.ctx)
					gone := a.begin(ctx, "door")
					synctest.Wait()
					next := a.begin(a.ctx, "door")
					synctest.Wait()
					both := make(chan struct{})
					go func() { <-both; cancel() }()
					unlocked := make(chan error, 1)
					go func() { <-both; unlocked <- hold.Unlock(a.ctx) }()
					close(both)
					require.NoError(t, <-unlocked)
					s.receive(gone.done, "Lock returns")
					if gone.err == nil {
						s.unlock(gone.hold)
					} else {
						require.ErrorIs(t, gone.err, context.Canceled)
					}
					s.unlock(next.got())
				}
				require.Less(t, time.Since(start), time.Hour)
				s.nothingRemains()
			})
		})
	}
}

func (s *stage) withdrawn(w *asking) {
	s.Helper()
	err := w.failed()
	require.ErrorIs(s, err, redlatch.ErrNotAcquired)
	require.ErrorIs(s, err, context.Canceled)
}

// A process pays two commands for a lock that nobody else wants: an acquire and a release. Each
// hand-over between its goroutines costs one more command.
func TestHandOverInsideAProcessIsOneCommand(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const waiters = 20
		a := s.actor(redlatch.WithLocalHandoffTime(time.Hour))
		before := a.scripts.Load()
		s.unlock(a.lock("door"))
		require.Equal(s, int64(2), a.scripts.Load()-before, "lock and unlock")

		before = a.scripts.Load()
		hold := a.lock("door")
		var waits []*asking
		for range waiters {
			waits = append(waits, a.begin(a.ctx, "door"))
		}
		synctest.Wait()
		fences := []int64{hold.Fence()}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, w := range waits {
			all.Go(func() {
				<-w.done
				if w.err != nil {
					s.Errorf("lock: %v", w.err)
					return
				}
				mu.Lock()
				fences = append(fences, w.hold.Fence())
				mu.Unlock()
				if err := w.hold.Unlock(a.ctx); err != nil {
					s.Errorf("unlock: %v", err)
				}
			})
		}
		s.unlock(hold)
		all.Wait()
		require.Equal(s, int64(1+waiters+1), a.scripts.Load()-before)
		for i := range fences[1:] {
			require.Less(s, fences[i], fences[i+1])
		}
	})
}

// After the time of its local handoffs, the process releases the lock and asks again. Then it has as
// much time again. Each handoff costs one command, however often that happens.
func TestLocalHandoffTimeBeginsAnewWithEachGrantOfRedis(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const turns, rounds = 3, 4
		a := s.actor(redlatch.WithLocalHandoffTime(turns * time.Millisecond))
		before := a.scripts.Load()
		hold := a.lock("door")
		var waits []*asking
		for range turns*rounds - 1 {
			waits = append(waits, a.begin(a.ctx, "door"))
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		s.unlock(hold)
		for _, w := range waits {
			h := w.got()
			time.Sleep(time.Millisecond)
			s.unlock(h)
		}
		const commands = 1 + (turns - 1) + 1 // an acquire, the transfers, a release
		require.Equal(t, int64(rounds*commands), a.scripts.Load()-before)
	})
}

// The server refuses to hand over the lock, so the process releases it instead. The chosen waiter
// is still the first.
func TestARefusedHandOverKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		first := s.lock(t.Context())
		var holds []<-chan *lock.Hold
		for range 3 {
			hold, _ := s.begin(t.Context())
			holds = append(holds, hold)
		}
		refuse := s.proxy.Inject(redistest.Rule{Match: aTransfer, Times: 1, Action: redistest.Refuse("NOPERM no")})
		s.unlock(first)
		require.Equal(t, 1, refuse.Bites())
		for i, hold := range holds {
			h := s.soon(hold)
			require.NotNil(t, h, "waiter %d is overtaken", i)
			s.unlock(h)
		}
		s.nothingLeft()
	})
}

func TestWaitForOneselfIsLoggedOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const after = 10 * time.Second
		a := s.actor(redlatch.WithSelfDeadlockWarning(after))
		outer := a.lockHere("door")
		ctx, cancel := context.WithCancel(a.ctx)
		waits := a.begin(ctx, "door") // not outer.Context()
		time.Sleep(after - time.Millisecond)
		synctest.Wait()
		require.Empty(t, a.log.lines())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, a.log.lines(), 1)
		line := a.log.lines()[0]
		require.Contains(t, line, "lock=door")
		require.Contains(t, line, fmt.Sprintf("held_since=%s", outer.site))
		require.Contains(t, line, "waiting_at=")
		require.Contains(t, line, "pass on the context of its hold")
		require.NotContains(t, line, "the same context", "neither call was under a lock")
		require.NotContains(t, strings.SplitN(line, "waiting_at=", 2)[1], "/reentrant/")
		time.Sleep(10 * after)
		synctest.Wait()
		require.Len(t, a.log.lines(), 1, "once")
		cancel()
		s.withdrawn(waits)
		s.unlock(outer.Hold)
	})
}

// This is the most common way to wait for oneself: the holder goes on with the context that it
// locked with.
func TestWaitForOneselfWithTheContextOfTheLockCallIsNamed(t *testing.T) {
	onBothKinds(t, func(r *reentry) {
		m := r.mutex("inner")
		err := r.mutex("outer").Do(context.Background(), func(ctx context.Context) error {
			h, err := m.Lock(ctx)
			require.NoError(r, err)
			defer r.unlock(h)
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err = m.Lock(bounded) // not h.Context()
			require.ErrorIs(r, err, redlatch.ErrNotAcquired)
			return nil
		})
		require.NoError(r, err)
		require.Len(r, r.log.lines(), 1)
		require.Contains(r, r.log.lines()[0], "both calls got the same context")
		require.Contains(r, r.log.lines()[0], "lock=inner")
	})
}

// One wait gets one warning. The waiter first waits in the client's own queue, behind a hold of the
// same client. Then it is the first there, behind another hold. (That hold comes by TryLock, which
// may get ahead, after the lock was removed by hand and by another process.)
func TestWaitForOneselfIsLoggedOnceQueuedAndLeading(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		const after = 10 * time.Second
		a, b := s.actor(redlatch.WithSelfDeadlockWarning(after)), s.actor()
		first := a.lock("door")
		ctx, cancel := context.WithCancel(a.ctx)
		waits := a.begin(ctx, "door")
		time.Sleep(2 * after)
		require.Len(t, a.log.lines(), 1, "queued")

		_, err := a.Mutex("door").ForceRelease(a.ctx, "")
		require.NoError(t, err)
		other := b.lock("door")
		require.ErrorIs(t, first.Unlock(a.ctx), redlatch.ErrLost)
		s.settle() // the waiter is the first, and has asked
		require.NoError(t, s.admin.Del(a.ctx, "door").Err())
		second, err := a.Mutex("door").TryLock(a.ctx)
		require.NoError(t, err)
		time.Sleep(10 * after)
		synctest.Wait()
		require.True(t, waits.pending())
		require.Len(t, a.log.lines(), 1, "once, leading too")
		cancel()
		require.Error(t, waits.failed())
		s.unlock(second)
		require.ErrorIs(t, other.Unlock(b.ctx), redlatch.ErrLost)
	})
}

// Waiting for another process is no reason to warn.
func TestWaitForOthersIsNotLogged(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(redlatch.WithSelfDeadlockWarning(time.Second)), s.actor()
		hold := b.lock("door")
		waits := a.begin(a.ctx, "door")
		time.Sleep(time.Minute)
		s.unlock(hold)
		s.unlock(waits.got())
		require.Empty(t, a.log.lines())
	})
}

// sited is a hold, and the place where it was acquired.
type sited struct {
	*lock.Hold
	site string
}

func (a *actor) lockHere(name string) sited {
	a.s.Helper()
	_, file, line, _ := runtime.Caller(0)
	hold, err := a.Mutex(name).Lock(a.ctx) // one line below
	require.NoError(a.s, err)
	return sited{hold, fmt.Sprintf("%s:%d", file, line+1)}
}

// slowScript delays the answer of one script, which Redis has run.
type slowScript struct {
	armed         atomic.Bool
	reached, gate chan struct{}
}

func newSlowScript() *slowScript {
	return &slowScript{reached: make(chan struct{}), gate: make(chan struct{})}
}

func (h *slowScript) arm() { h.armed.Store(true) }

func (h *slowScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") && h.armed.CompareAndSwap(true, false) {
			close(h.reached)
			<-h.gate
		}
		return err
	}
}

func (h *slowScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// Two calls of one chain run at the same time. The slower one finds the lock taken by its own
// chain, and re-enters it.
func TestATryThatFindsItsOwnChainReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		s.unlock(s.lock(context.Background())) // the client learns the server's clock
		chain := redlatch.WithOwner(context.Background())
		slow := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.DelayRequest(50 * time.Millisecond)})
		slower := make(chan error, 1)
		var second *lock.Hold
		go func() {
			var err error
			second, err = s.mu.TryLock(chain)
			slower <- err
		}()
		slow.Await(1)
		first, err := s.mu.TryLock(chain)
		require.NoError(t, err)
		require.NoError(t, <-slower)
		require.Equal(t, first.ID(), second.ID())
		s.unlock(second)
		s.unlock(first)
		s.nothingLeft()
	})
}

// stalled is a context whose Err blocks until its gate opens, for a waiter in the local queue that gives up. So the
// waiter stands still between its decision and its error, as a goroutine does that does not run.
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

// A waiter gives up, and gets a handoff before its error is made. No caller has had the lock by that handoff, so no
// error names it as the holder.
func TestAWaiterThatGaveUpIsNotItsOwnHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t, redlatch.WithLocalHandoffTime(time.Minute))
		held := s.lock(t.Context())
		parent, cancel := context.WithCancel(t.Context())
		ctx := stalled{parent, make(chan struct{})}
		ended := make(chan error, 1)
		go func() { _, err := s.mu.Lock(ctx); ended <- err }()
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
		s.free()
	})
}
