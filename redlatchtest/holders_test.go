package redlatchtest_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/semaphore"
)

func TestALockThatIsHeldElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		release := k.elsewhere(s)
		_, err := k.try(t.Context(), s.Client)
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		if busy.Limit == 0 { // a semaphore has several holders
			require.Equal(t, "another process", busy.Description)
		}
		release()
		release()
		k.requireFree(t, s.Client)
	})
}

func TestAReleaseElsewhereWakesAWaiter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		release := k.elsewhere(s)
		got := waitFor(t, k, s.Client)
		release()
		require.NoError(t, <-got)
	})
}

// waitFor starts to wait, and returns what the wait and the release of the lock result in. In a
// bubble, the waiter waits when waitFor returns.
func waitFor(t *testing.T, k kind, c *redlatch.Client) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	ctx := soon(t)
	go func() {
		h, err := k.lock(ctx, c)
		if err == nil {
			err = h.release(context.WithoutCancel(ctx))
		}
		got <- err
	}()
	if strings.HasSuffix(t.Name(), "/bubble") {
		synctest.Wait()
	}
	return got
}

func TestAHolderElsewhereLivesUntilItsRelease(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := redlatchtest.New(t)
			k.elsewhere(s)
			runtime.GC() // nothing but the server refers to the hold
			runtime.GC()
			time.Sleep(time.Hour)
			k.requireTaken(t, s.Client)
		})
	}
}

func TestALostLockIsLostWhenLoseReturns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		other := s.NewClient()
		for _, c := range []*redlatch.Client{s.Client, other} {
			h := k.mustLock(t, c)
			s.Lose("door")
			requireLost(t, h)
			k.requireFree(t, other)
		}
	})
}

func TestALostLockGoesToAWaiter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		for _, waiter := range []*redlatch.Client{s.Client, s.NewClient()} {
			h := k.mustLock(t, s.Client)
			got := waitFor(t, k, waiter)
			s.Lose("door")
			requireLost(t, h)
			require.NoError(t, <-got)
		}
	})
}

func TestAllPermitsAndTheMutexOfANameAreLost(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		mutex, semaphore := kinds[0], kinds[2]
		a := mutex.mustLock(t, s.Client)
		permits := s.Client.Semaphore("door", 3)
		var all []held
		for range 3 {
			p, err := permits.Acquire(t.Context(), 1)
			require.NoError(t, err)
			all = append(all, held{p.Lost(), p.Context(), p.Release, p.Trusted})
		}
		other, err := s.Client.Mutex("other").Lock(t.Context())
		require.NoError(t, err)
		s.Lose("door")
		requireLost(t, a)
		for _, h := range all {
			requireLost(t, h)
		}
		semaphore.requireFree(t, s.Client)
		_, err = s.Client.Mutex("other").TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "another name is not lost")
		require.NoError(t, other.Unlock(t.Context()))
	})
}

func TestALossElsewhereFreesTheLock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		release := k.elsewhere(s)
		s.Lose("door")
		k.requireFree(t, s.Client)
		h := k.mustLock(t, s.Client)
		release() // has nothing to release any more
		requireHeld(t, h)
	})
}

// A holder cannot learn of a loss while it cannot reach the server.
func TestALossDuringAnOutageIsNoticedAfterIt(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for name, lose := range map[string]func(s *redlatchtest.Server){
			"lose":    func(s *redlatchtest.Server) { s.Lose("door") },
			"advance": func(s *redlatchtest.Server) { s.Advance(lease) },
		} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := redlatchtest.New(t)
					h := k.mustLock(t, s.Client)
					s.Down()
					lose(s)
					synctest.Wait()
					require.NoError(t, h.ctx.Err())
					s.Up()
					time.Sleep(lease / 2)
					requireLost(t, h)
				})
			})
		}
	}
}

func TestAdvanceEndsTheLeaseElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		k.elsewhere(s)
		s.Advance(lease - 10*time.Second)
		k.requireTaken(t, s.Client)
		s.Advance(lease + time.Second) // a renewal may have come in between
		k.requireFree(t, s.Client)
	})
}

func TestAdvanceWakesWaiters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		k.elsewhere(s)
		got := waitFor(t, k, s.Client)
		s.Advance(2 * lease)
		require.NoError(t, <-got)
	})
}

// In a bubble, waiters get the lock without any time for the program.
func TestAdvanceTakesTheProgramNoTime(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := redlatchtest.New(t)
				k.elsewhere(s)
				start := time.Now()
				got := waitFor(t, k, s.Client)
				synctest.Wait()
				s.Advance(2 * lease)
				require.NoError(t, <-got)
				require.Less(t, time.Since(start), 100*time.Millisecond)
			})
		})
	}
}

func TestAHolderIsLostWhenAdvanceReturns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		for range 2 {
			h := k.mustLock(t, s.Client)
			s.Advance(lease)
			requireLost(t, h)
			k.requireFree(t, s.NewClient())
		}
	})
}

// The watchdog renews a lease that Advance has left, before the next Advance takes the rest.
func TestAdvanceRenewsWhatItDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := redlatchtest.New(t)
			h := k.mustLock(t, s.Client)
			for range 5 {
				s.Advance(lease - time.Second)
				synctest.Wait()
			}
			requireHeld(t, h)
		})
	}
}

// Virtual time stands still while a program works, and fences are made from the clock of the
// server.
func TestFencesOfANameGrowAtOneInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		start, last := time.Now(), int64(0)
		requireNext := func(name string) {
			hold, err := s.Client.Mutex(name).TryLock(t.Context())
			require.NoError(t, err)
			require.Greater(t, hold.Fence(), last)
			last = hold.Fence()
			text, err := hold.Export(t.Context(), time.Minute)
			require.NoError(t, err)
			hold, err = s.NewClient().Mutex(name).Attach(t.Context(), text)
			require.NoError(t, err)
			require.Greater(t, hold.Fence(), last)
			last = hold.Fence()
			require.NoError(t, hold.Unlock(t.Context()))
		}
		for range 3 {
			requireNext("door")
			s.HoldElsewhere("door")()
			info, err := s.Client.Mutex("door").Inspect(t.Context())
			require.NoError(t, err)
			require.Greater(t, info.Fence, last)
			last = info.Fence
			s.HoldElsewhere("door")
			s.Lose("door")
			hold, err := s.Client.FairMutex("door").Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, hold.Fence(), last+1, "the lost hold had one too")
			last = hold.Fence()
			require.NoError(t, hold.Unlock(t.Context()))
		}
		require.Equal(t, start, time.Now())
	})
}

// observer counts what the program does.
type observer struct{ events chan event.Event }

func (o observer) Observe(_ context.Context, e event.Event) { o.events <- e }

func TestAnObserverSeesNothingOfWhatHappensElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := observer{make(chan event.Event, 100)}
		s := redlatchtest.New(t, redlatch.WithObserver(o), redlatch.WithObserver(o))
		release := s.HoldElsewhere("door")
		s.AcquireElsewhere("door", 3, 3)
		time.Sleep(2 * lease) // renewals
		s.Lose("door")
		release()
		s.HoldElsewhere("door")()
		s.HoldElsewhere("other")
		s.Advance(2 * lease)
		synctest.Wait()
		require.Empty(t, o.events)

		requireHeld(t, kinds[0].mustLock(t, s.NewClient()))
		synctest.Wait()
		require.Len(t, o.events, 6, "both observers: a wait that began, one that ended, and a release")
	})
}

func TestFencesGrowAcrossAdvance(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		fence := int64(0)
		for range 3 {
			hold, err := s.Client.Mutex("door").Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, hold.Fence(), fence)
			fence = hold.Fence()
			s.Advance(2 * lease)
			require.ErrorIs(t, hold.Unlock(t.Context()), redlatch.ErrLost)
		}
	})
}

// Options that end a hold of the program do not end that of HoldElsewhere, which the test ends.
func TestHoldElsewhereLastsUntilItIsReleased(t *testing.T) {
	for name, option := range map[string]redlatch.LockOption{
		"WithMaxHold": redlatch.WithMaxHold(time.Second), "WithProgressTimeout": redlatch.WithProgressTimeout(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redlatchtest.New(t, option, redlatch.WithLease(3*time.Second))
				release := server.HoldElsewhere("orders:42")
				time.Sleep(time.Minute)
				_, err := server.Client.Mutex("orders:42").TryLock(t.Context())
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				release()
				hold, err := server.Client.Mutex("orders:42").TryLock(t.Context())
				require.NoError(t, err)
				require.NoError(t, hold.Unlock(t.Context()))
			})
		})
	}
}

// The test ends as soon as its program has noticed the loss, and Lose has then yet to look at other
// locks.
func TestATestDoesNotEndWhileLoseRuns(t *testing.T) {
	for range 50 {
		failures, _ := run(func(t testing.TB) {
			server := redlatchtest.New(t)
			ctx := context.Background()
			held, err := server.NewClient().Mutex("other").Lock(ctx)
			if err != nil {
				t.Fatalf("%v", err)
			}
			_ = server.Client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
				go server.Lose("orders")
				<-ctx.Done()
				return ctx.Err()
			})
			_ = held.Unlock(ctx)
		})
		require.Empty(t, failures)
	}
}

// Inspect shows 500 permits.
func TestLoseTakesAllOfVeryManyPermits(t *testing.T) {
	s := redlatchtest.New(t)
	sem := s.Client.Semaphore("render", 1000)
	var all []*semaphore.Permit
	for range 505 {
		p, err := sem.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		all = append(all, p)
	}
	s.HoldElsewhere("orders:42")
	s.Lose("orders:42")
	for _, p := range all {
		require.True(t, p.Trusted(), "another lock was lost")
	}
	s.Lose("render")
	for _, p := range all {
		require.ErrorIs(t, p.Release(t.Context()), redlatch.ErrLost)
	}
	info, err := sem.Inspect(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.InUse)
}
