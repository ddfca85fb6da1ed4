package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/semaphore"
)

// MustAcquire waits for n units of a semaphore.

func TestSemaphoreGivesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := b.Client(t)
		name := b.Name(t)
		sem := stage.LocksOn(t, rdb, redlatch.WithDescription("me")).Semaphore(name, 3)
		other := stage.LocksOn(t, b.Client(t)).Semaphore(name, 3)

		one, two := stage.MustAcquire(t, sem, 1), stage.MustAcquire(t, other, 2)
		require.NotEqual(t, one.ID(), two.ID())
		require.Equal(t, 2, two.Units())
		require.Equal(t, name, one.Name())
		require.True(t, one.Trusted())
		require.WithinRange(t, one.TrustedUntil(), time.Now(), time.Now().Add(30*time.Second))
		_, err := sem.TryAcquire(t.Context(), 1)
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, &redlatch.NotAcquiredError{Name: name, InUse: 3, Limit: 3, Position: 1}, busy)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.EqualError(t, err, fmt.Sprintf("redlatch: semaphore %q not acquired: 3 of 3 in use; nobody waits", name))

		info := inUse(t, sem)
		require.Equal(t, 3, info.InUse)
		require.Len(t, info.Holders, 2)
		require.Equal(t, one.ID(), info.Holders[0].ID)
		require.Equal(t, "me", info.Holders[0].Description)
		require.WithinDuration(t, time.Now(), info.Holders[0].Since, 10*time.Second)
		require.Equal(t, 2, info.Holders[1].Units)

		require.NoError(t, two.Release(t.Context()))
		require.ErrorIs(t, context.Cause(two.Context()), context.Cause(two.Context()))
		require.False(t, two.Trusted())
		three := stage.MustAcquire(t, sem, 2)
		require.NoError(t, three.Release(t.Context()))
		require.NoError(t, one.Release(t.Context()))
		onlyLimitOf(t, rdb, name)
		require.NoError(t, sem.Do(t.Context(), 3, func(ctx context.Context) error {
			require.Equal(t, 3, inUse(t, sem).InUse)
			return nil
		}))
		onlyLimitOf(t, rdb, name)
	})
}

func TestWaitersForPermitsAreServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		sems := make([]*semaphore.Semaphore, 3)
		for i := range sems {
			sems[i] = stage.LocksOn(t, v.Client()).Semaphore("render", 4)
		}
		held := []*semaphore.Permit{stage.MustAcquire(t, sems[0], 1), stage.MustAcquire(t, sems[1], 3)}
		large, _ := stage.AcquireInBackground(t.Context(), sems[0], 3)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		small, _ := stage.AcquireInBackground(t.Context(), sems[1], 1)
		time.Sleep(time.Millisecond)
		last, _ := stage.AcquireInBackground(t.Context(), sems[2], 2)
		time.Sleep(time.Minute)
		_, err := sems[2].TryAcquire(t.Context(), 1)
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, 3, busy.Length)

		// One unit is free. The second waiter requests one, but the first requests three.
		require.NoError(t, held[0].Release(t.Context()))
		time.Sleep(time.Minute)
		require.Empty(t, small)
		_, err = sems[2].TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it would overtake")

		freed := time.Now()
		require.NoError(t, held[1].Release(t.Context()))
		one, two := <-large, <-small
		require.Zero(t, time.Since(freed), "both are woken by the release")
		time.Sleep(time.Minute)
		require.Empty(t, last)
		require.NoError(t, one.Release(t.Context()))
		three := <-last
		require.NoError(t, two.Release(t.Context()))
		time.Sleep(time.Hour)
		require.True(t, three.Trusted(), "granted by a message, and renewed ever after")
		require.NoError(t, three.Release(t.Context()))
		onlyLimitOf(t, v.Client(), "render")
	})
}

func TestBadInputToASemaphore(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rdb := b.Client(t)
		name := b.Name(t)
		locks := stage.LocksOn(t, rdb)
		var bad *redlatch.ConfigError
		for _, c := range []struct{ limit, n int }{{0, 1}, {-1, 1}, {8, 0}, {8, -3}, {8, 9}, {1 << 31, 1}} {
			_, err := locks.Semaphore(name, c.limit).Acquire(t.Context(), c.n)
			require.ErrorAs(t, err, &bad, "%+v", c)
			require.ErrorIs(t, err, redlatch.ErrConfig)
			_, err = locks.Semaphore(name, c.limit).TryAcquire(t.Context(), c.n)
			require.ErrorAs(t, err, &bad, "%+v", c)
		}
		_, err := locks.Semaphore("", 1).Inspect(t.Context())
		require.ErrorAs(t, err, &bad)
		_, err = locks.Semaphore(name, 8).Resize(t.Context(), 0)
		require.ErrorAs(t, err, &bad)
		_, err = locks.Semaphore("redlatch:permits:{x}", 8).Acquire(t.Context(), 1)
		require.ErrorAs(t, err, &bad)
		_, err = locks.Semaphore(name, 8, redlatch.WithLease(time.Millisecond)).Acquire(t.Context(), 1)
		require.ErrorAs(t, err, &bad)

		require.NoError(t, stage.MustAcquire(t, locks.Semaphore(name, 8), 1).Release(t.Context()))
		for _, f := range []func(context.Context, int) (*semaphore.Permit, error){locks.Semaphore(name, 9).Acquire, locks.Semaphore(name, 9).TryAcquire} {
			_, err = f(t.Context(), 1)
			var limits *redlatch.LimitError
			require.ErrorAs(t, err, &limits)
			require.Equal(t, &redlatch.LimitError{Name: name, Requested: 9, Limit: 8, Declared: 8}, limits)
			require.ErrorIs(t, err, redlatch.ErrConfig)
		}
		onlyLimitOf(t, rdb, name)

		require.NoError(t, rdb.Set(t.Context(), key.ForSemaphore(name+"s").Permits, "x", 0).Err())
		_, err = locks.Semaphore(name+"s", 8).Acquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.ErrorContains(t, err, "WRONGTYPE")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locks.Semaphore(name, 8).Acquire(over, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, rdb.Del(t.Context(), key.ForSemaphore(name+"s").Permits).Err())
	})
}

// A permit that is released twice, late, or by another way counts once.
func TestPermitIsReleasedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client())
		sem := locks.Semaphore("render", 2)
		ctx := context.Background()
		p, q := stage.MustAcquire(t, sem, 1), stage.MustAcquire(t, sem, 1)
		require.NoError(t, p.Release(ctx))
		err := p.Release(ctx)
		require.ErrorIs(t, err, redlatch.ErrNotHeld)
		require.ErrorContains(t, err, "release")
		require.Equal(t, 1, inUse(t, sem).InUse)

		units, err := sem.ForceRelease(ctx, q.ID())
		require.NoError(t, err)
		require.Equal(t, 1, units)
		units, err = sem.ForceRelease(ctx, q.ID())
		require.NoError(t, err)
		require.Zero(t, units)
		other := stage.MustAcquire(t, sem, 2)
		require.ErrorIs(t, q.Release(ctx), redlatch.ErrLost)
		require.ErrorIs(t, q.Release(ctx), redlatch.ErrLost)
		require.Equal(t, 2, inUse(t, sem).InUse)
		require.NoError(t, other.Release(ctx))

		// Its lease ended while its process had no connection.
		late := stage.MustAcquire(t, sem, 2)
		v.Down()
		<-late.Lost()
		require.False(t, late.Trusted())
		v.Up()
		time.Sleep(time.Minute)
		again := stage.MustAcquire(t, sem, 2)
		require.ErrorIs(t, late.Release(ctx), redlatch.ErrLost)
		require.Equal(t, 2, inUse(t, sem).InUse)
		require.NoError(t, again.Release(ctx))
		var none *semaphore.Permit
		require.ErrorIs(t, none.Release(ctx), redlatch.ErrNotHeld)
		time.Sleep(10 * time.Second)
		onlyLimitOf(t, v.Client(), "render")
	})
}

// If a permit ends for any reason, its worker is notified before the server grants its units to
// others. If an operator took them away, the worker is notified at its next renewal.
func TestLossOfAPermitIsNotified(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for name, end := range map[string]func(t *testing.T, v *redistest.Virtual, s *semaphore.Semaphore, id string){
		"outage": func(_ *testing.T, v *redistest.Virtual, _ *semaphore.Semaphore, _ string) { v.Down() },
		"silence": func(_ *testing.T, v *redistest.Virtual, _ *semaphore.Semaphore, _ string) {
			v.Inject(redistest.Rule{Match: redistest.Any(), Action: redistest.Swallow()})
		},
		"operator": func(t *testing.T, _ *redistest.Virtual, s *semaphore.Semaphore, id string) {
			_, err := s.ForceRelease(t.Context(), id)
			require.NoError(t, err)
		},
		"data": func(_ *testing.T, v *redistest.Virtual, _ *semaphore.Semaphore, _ string) { v.Server.FlushAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				sem := stage.LocksOn(t, v.Client(), redlatch.WithLease(lease)).Semaphore("render", 2)
				p := stage.MustAcquire(t, sem, 2)
				ctx := p.Context()
				time.Sleep(10 * lease)
				require.True(t, p.Trusted())
				k := key.ForSemaphore("render")
				end(t, v, sem, p.ID())
				began := time.Now()
				<-p.Lost()
				if strings.Contains("outage silence", name) {
					score, err := v.Server.ZScore(k.Permits, p.ID()+"#2")
					require.NoError(t, err)
					left := time.Until(time.UnixMilli(int64(score) - 1<<42))
					require.Positive(t, left, "the server had given it away")
					v.Up()
				} else {
					require.LessOrEqual(t, time.Since(began), lease/3+lease/20)
				}
				var lost *redlatch.LostError
				require.ErrorAs(t, context.Cause(ctx), &lost)
				require.Equal(t, p.ID(), lost.ID)
				require.False(t, p.Trusted())
				if name != "silence" {
					require.ErrorIs(t, p.Release(context.Background()), redlatch.ErrLost)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A lost message costs a heartbeat.
func TestLostGrantOfAPermitCostsAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heartbeat = 6 * time.Second
		v := redistest.Bubble(t)
		denied := v.Client()
		sem := stage.LocksOn(t, v.Client(), redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 1)
		deaf := stage.LocksOn(t, denied, redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 1)
		p := stage.MustAcquire(t, sem, 1)
		v.Inject(redistest.Rule{Match: redistest.Command("subscribe"), Action: redistest.Refuse("NOPERM no channels")})
		for range 10 {
			got, _ := stage.AcquireInBackground(t.Context(), deaf, 1)
			time.Sleep(heartbeat)
			require.NoError(t, p.Release(t.Context()))
			freed := time.Now()
			p = <-got
			require.LessOrEqual(t, time.Since(freed), heartbeat/3+heartbeat/10)
			got, _ = stage.AcquireInBackground(t.Context(), sem, 1)
			time.Sleep(heartbeat)
			require.NoError(t, p.Release(t.Context()))
			p = <-got
		}
		require.NoError(t, p.Release(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// The notice is code of the user, and runs in the middle of the wait.
func TestACallbackOfASemaphoreThatPanicsLeavesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client())
		sem := locks.Semaphore("render", 1)
		p := stage.MustAcquire(t, sem, 1)
		hasty := locks.Semaphore("render", 1, redlatch.WithWaitCallback(func(lock.Waiting) { panic("notice") }))
		require.Panics(t, func() { _, _ = hasty.Acquire(t.Context(), 1) })
		time.Sleep(time.Second) // less than a heartbeat
		require.NoError(t, p.Release(t.Context()))
		p, err := sem.TryAcquire(t.Context(), 1)
		require.NoError(t, err, "nobody is before this one")
		require.NoError(t, p.Release(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// A notice that blocks costs its own waiter the units, and the others a heartbeat.
func TestACallbackOfASemaphoreThatBlocksKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		sem := stage.LocksOn(t, v.Client()).Semaphore("render", 1)
		shown, blocked, again := make(chan struct{}, 100), make(chan struct{}), atomic.Bool{}
		slow := stage.LocksOn(t, v.Client()).Semaphore("render", 1, redlatch.WithWaitCallback(func(w lock.Waiting) {
			again.Store(again.Load() || w.Requeued)
			shown <- struct{}{}
			<-blocked
		}))
		p := stage.MustAcquire(t, sem, 1)
		first, _ := stage.AcquireInBackground(t.Context(), slow, 1)
		<-shown
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next, failed := stage.AcquireInBackground(bounded, sem, 1)
		time.Sleep(time.Second)
		freed := time.Now()
		require.NoError(t, p.Release(t.Context()))
		select {
		case p = <-next:
		case err := <-failed:
			require.NoError(t, err)
		}
		require.LessOrEqual(t, time.Since(freed), stage.Heartbeat+10*time.Millisecond)
		close(blocked)
		for !again.Load() { // the notice may show the place once more before its loss
			<-shown
		}
		require.Empty(t, first)
		require.NoError(t, p.Release(t.Context()))
		p = <-first
		require.NoError(t, p.Release(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// The units of a crashed holder come back with the end of its lease. A waiter that needs the units
// of several holders gets them too.
func TestUnitsOfTheCrashedComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 9 * time.Second
		v := redistest.Bubble(t)
		dies, lives := v.Client(), v.Client()
		dead := stage.LocksOn(t, dies, redlatch.WithLease(lease)).Semaphore("render", 10)
		sem := stage.LocksOn(t, lives, redlatch.WithLease(lease)).Semaphore("render", 10)
		held := []*semaphore.Permit{stage.MustAcquire(t, sem, 2)} // kept, because the client does not renew garbage
		for range 8 {
			held = append(held, stage.MustAcquire(t, dead, 1))
		}
		time.Sleep(time.Minute)
		got, _ := stage.AcquireInBackground(t.Context(), sem, 6)
		time.Sleep(time.Second)
		require.NoError(t, dies.Close()) // like a kill: the process releases nothing
		crashed := time.Now()
		<-got
		require.LessOrEqual(t, time.Since(crashed), lease+2*time.Millisecond)
		time.Sleep(lease) // the leases of the crashed holders end within a heartbeat of each other
		require.Equal(t, 8, inUse(t, sem).InUse)
		runtime.KeepAlive(held)
		time.Sleep(10 * time.Second)
	})
}

// Any number of waiters that crashed together cost the others one heartbeat.
func TestExpiredWaitersForPermitsCostOneHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heartbeat = 6 * time.Second
		v := redistest.Bubble(t)
		dies := v.Client()
		dead := stage.LocksOn(t, dies, redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 3)
		sem := stage.LocksOn(t, v.Client(), redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 3)
		p := stage.MustAcquire(t, sem, 3)
		for range 50 {
			stage.AcquireInBackground(t.Context(), dead, 2)
		}
		time.Sleep(time.Second)
		got, _ := stage.AcquireInBackground(t.Context(), sem, 1)
		time.Sleep(time.Minute)
		require.NoError(t, dies.Close())
		require.NoError(t, p.Release(context.Background()))
		freed := time.Now()
		p = <-got
		require.LessOrEqual(t, time.Since(freed), 2*heartbeat)
		require.NoError(t, p.Release(context.Background()))
		time.Sleep(time.Minute)
		onlyLimitOf(t, v.Client(), "render")
	})
}

// They cost no more if one command cannot drop all of them. The first live waiter asks again
// immediately until all are gone.
func TestVeryManyExpiredWaitersForPermitsCostNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 9 * time.Second
		v := redistest.Bubble(t)
		dies, admin := v.Client(), v.Client()
		held := stage.MustAcquire(t, stage.LocksOn(t, dies, redlatch.WithLease(lease)).Semaphore("render", 1), 1)
		got, _ := stage.AcquireInBackground(t.Context(), stage.LocksOn(t, v.Client()).Semaphore("render", 1), 1)
		time.Sleep(time.Minute)
		require.NoError(t, dies.Close())
		left := time.Until(held.TrustedUntil())
		time.Sleep(left)
		dead := make([]redis.Z, 1800)
		for i := range dead {
			dead[i] = redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("dead:%d 1 5000 5000", i)}
		}
		require.NoError(t, admin.ZAdd(t.Context(), "redlatch:permits-queue:{render}", dead...).Err())
		require.NoError(t, admin.ZAdd(t.Context(), "redlatch:permits-alive:{render}", dead...).Err())
		planted := time.Now()
		p := stage.Within(t, got, "it is served")
		require.LessOrEqual(t, time.Since(planted), lease/10+50*time.Millisecond, "the rest of the lease")
		require.NoError(t, p.Release(context.Background()))
		time.Sleep(time.Minute)
		onlyLimitOf(t, admin, "render")
	})
}

// A crashed waiter that does not fit blocks the others until its heartbeat ends, but not until the
// next heartbeat of one of them.
func TestAnExpiredWaiterThatDoesNotFitCostsItsHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heartbeat = 6 * time.Second
		for phase := range 6 {
			v := redistest.Bubble(t)
			dies := v.Client()
			sem := stage.LocksOn(t, v.Client(), redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 3)
			p := stage.MustAcquire(t, sem, 2)
			stage.AcquireInBackground(t.Context(), stage.LocksOn(t, dies, redlatch.WithHeartbeat(heartbeat)).Semaphore("render", 3), 3)
			time.Sleep(time.Duration(phase) * 400 * time.Millisecond)
			got, _ := stage.AcquireInBackground(t.Context(), sem, 1)
			time.Sleep(time.Minute + time.Duration(phase)*300*time.Millisecond)
			require.NoError(t, dies.Close())
			died := time.Now()
			next := stage.Within(t, got, "it is served")
			require.LessOrEqual(t, time.Since(died), heartbeat+10*time.Millisecond)
			require.NoError(t, next.Release(context.Background()))
			require.NoError(t, p.Release(context.Background()))
		}
		time.Sleep(time.Minute)
	})
}

// The key of the permits outlives all of them, whatever retention the last writer has. A waiter's
// grant counts until its end.
func TestPermitsOutliveTheRetentionOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heartbeat = 20 * time.Second
		v := redistest.Bubble(t)
		dies := v.Client()
		brief := []redlatch.Option{redlatch.WithFenceRetention(time.Second), redlatch.WithHeartbeat(heartbeat)}
		a := stage.LocksOn(t, v.Client(), append(brief, redlatch.WithLease(200*time.Millisecond))...).Semaphore("render", 1)
		b := stage.LocksOn(t, dies, brief...).Semaphore("render", 1)
		p := stage.MustAcquire(t, a, 1)
		stage.AcquireInBackground(t.Context(), b, 1)
		time.Sleep(time.Second)
		require.NoError(t, dies.Close()) // it might be live, trust its grant, and only be cut off
		require.NoError(t, p.Release(t.Context()))
		for until := time.Now().Add(heartbeat / 2); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
			_, err := a.TryAcquire(t.Context(), 1)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		time.Sleep(time.Minute)
	})
}

// One waiter requests 8 units, and the next 5. The limit goes from 10 to 5 and back. The waiter for
// 8 gets an error about the limit of 5, or keeps its place before the other.
func TestResizeDownAndUpKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"notified": time.Second, "too quick to be notified": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				sem := stage.LocksOn(t, v.Client()).Semaphore("render", 10)
				deaf := stage.LocksOn(t, v.Client()).Semaphore("render", 10)
				if pause == 0 {
					v.Inject(redistest.Rule{Match: redistest.Command("subscribe"), Action: redistest.Refuse("NOPERM no channels")})
				}
				held := stage.MustAcquire(t, sem, 10)
				large, failed := stage.AcquireInBackground(t.Context(), deaf, 8)
				time.Sleep(time.Second)
				small, _ := stage.AcquireInBackground(t.Context(), sem, 5)
				time.Sleep(10 * time.Second)
				_, err := sem.Resize(t.Context(), 5)
				require.NoError(t, err)
				time.Sleep(pause)
				if pause > 0 {
					require.Equal(t, &redlatch.LimitError{Name: "render", Requested: 10, Limit: 5, Units: 8}, stage.Within(t, failed, "it hears of the limit"))
				}
				_, err = sem.Resize(t.Context(), 10)
				require.NoError(t, err)
				require.NoError(t, held.Release(t.Context()))
				if pause == 0 {
					p := stage.Within(t, large, "it keeps its place")
					require.Empty(t, small)
					require.NoError(t, p.Release(t.Context()))
				}
				p := stage.Within(t, small, "the other is served")
				require.NoError(t, p.Release(t.Context()))
				time.Sleep(time.Minute)
				onlyLimitOf(t, v.Client(), "render")
			})
		})
	}
}

func TestResizeServesAndTakesNothingAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		v := redistest.Bubble(t)
		sem := stage.LocksOn(t, v.Client()).Semaphore("render", 2)
		held := stage.MustAcquire(t, sem, 2)
		one, _ := stage.AcquireInBackground(ctx, sem, 1)
		time.Sleep(time.Second)
		two, _ := stage.AcquireInBackground(ctx, sem, 2)
		time.Sleep(time.Second)
		before, err := sem.Resize(ctx, 5)
		require.NoError(t, err)
		require.Equal(t, 2, before)
		resized := time.Now()
		p, q := <-one, <-two
		require.Zero(t, time.Since(resized), "at once")

		// Down: nothing is taken away, and the program with the old limit goes on.
		_, err = sem.Resize(ctx, 1)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		for _, x := range []*semaphore.Permit{held, p, q} {
			require.True(t, x.Trusted())
		}
		require.Equal(t, 5, inUse(t, sem).InUse)
		require.Equal(t, 1, inUse(t, sem).Limit)
		var limits *redlatch.LimitError
		_, err = sem.Acquire(ctx, 2)
		require.ErrorAs(t, err, &limits)
		require.Equal(t, &redlatch.LimitError{Name: "render", Requested: 2, Limit: 1, Units: 2}, limits)
		_, err = stage.LocksOn(t, v.Client()).Semaphore("render", 3).TryAcquire(ctx, 1)
		require.EqualError(t, err, `redlatch: semaphore "render" has a limit of 1 (declared as 2), but this program passed 3`)
		next, _ := stage.AcquireInBackground(ctx, stage.LocksOn(t, v.Client()).Semaphore("render", 1), 1)
		for _, x := range []*semaphore.Permit{held, p, q} {
			time.Sleep(time.Second)
			require.Empty(t, next)
			require.NoError(t, x.Release(ctx))
		}
		require.NoError(t, (<-next).Release(ctx))

		// A waiter for more than the new limit gets an error, and does not block the others.
		_, err = sem.Resize(ctx, 2)
		require.NoError(t, err)
		held = stage.MustAcquire(t, sem, 1)
		_, failed := stage.AcquireInBackground(ctx, sem, 2)
		time.Sleep(time.Second)
		small, _ := stage.AcquireInBackground(ctx, sem, 1)
		time.Sleep(time.Second)
		_, err = sem.Resize(ctx, 1)
		require.NoError(t, err)
		require.ErrorAs(t, stage.Within(t, failed, "it is sent away"), &limits)
		require.NoError(t, held.Release(ctx))
		require.NoError(t, stage.Within(t, small, "nobody is before it").Release(ctx))
		time.Sleep(10 * time.Second)
		onlyLimitOf(t, v.Client(), "render")
	})
}

func TestGivingUpLeavesNoPlaceAndNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client())
		sem := locks.Semaphore("render", 4)
		held := stage.MustAcquire(t, sem, 3)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(context.Background())
		_, failed := stage.AcquireInBackground(ctx, sem, 2)
		time.Sleep(time.Second)
		behind, _ := stage.AcquireInBackground(context.Background(), sem, 1)
		time.Sleep(time.Minute)
		require.Empty(t, behind)
		cancel(stop)
		began := time.Now()
		err := <-failed
		require.Zero(t, time.Since(began))
		var busy *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, []int{3, 4, 1, 2}, []int{busy.InUse, busy.Limit, busy.Position, busy.Length})
		require.ErrorIs(t, err, stop)
		require.ErrorIs(t, err, context.Canceled)
		p := <-behind
		require.Zero(t, time.Since(began), "the next has what it gave up")
		require.NoError(t, p.Release(context.Background()))
		require.NoError(t, held.Release(context.Background()))
		time.Sleep(10 * time.Second)
		onlyLimitOf(t, v.Client(), "render")
		require.Zero(t, stage.PermitsInUse(locks))
	})
}

func TestCloseReleasesPermitsAndEndsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		locks, err := redlatch.New(rdb)
		require.NoError(t, err)
		sem := locks.Semaphore("render", 3)
		p := stage.MustAcquire(t, sem, 2)
		_, failed := stage.AcquireInBackground(t.Context(), sem, 2)
		other, _ := stage.AcquireInBackground(t.Context(), stage.LocksOn(t, v.Client()).Semaphore("render", 3), 3)
		time.Sleep(time.Minute)
		require.NoError(t, locks.Close(t.Context()))
		require.ErrorIs(t, <-failed, redlatch.ErrClosed)
		stage.Within(t, p.Lost(), "the holder is notified")
		require.ErrorIs(t, context.Cause(p.Context()), redlatch.ErrClosed)
		require.ErrorIs(t, p.Release(t.Context()), redlatch.ErrClosed)
		require.NoError(t, stage.Within(t, other, "its units are free").Release(t.Context()))
		_, err = sem.Acquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrClosed)
		_, err = sem.Resize(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrClosed)
		onlyLimitOf(t, v.Client(), "render")
	})
}

// The server grants units to a client that has begun to close, and whose caller still waits. Close
// may have looked for permits before that grant.
func TestAcquireDuringCloseGivesNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		locks := stage.LocksOn(t, v.Client())
		sem := locks.Semaphore("render", 3)
		require.NoError(t, stage.MustAcquire(t, sem, 1).Release(t.Context())) // the server knows the script
		slow := v.Inject(redistest.Rule{Match: stage.Runs("semaphore/acquire"), Action: redistest.DelayReply(time.Second)})
		permit, failed := stage.AcquireInBackground(t.Context(), sem, 2)
		time.Sleep(time.Millisecond)
		require.NoError(t, locks.Close(t.Context()))
		require.Equal(t, 1, slow.Bites())
		select {
		case <-permit:
			t.Error("a closed client has a permit")
		case err := <-failed:
			require.ErrorIs(t, err, redlatch.ErrClosed)
		}
		onlyLimitOf(t, v.Client(), "render")
	})
}

// The call chain goes on under a permit, which is no owner of its own.
func TestPermitKeepsTheOwnerOfItsChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := stage.LocksOn(t, redistest.Bubble(t).Client())
		err := locks.Mutex("door").Do(context.Background(), func(ctx context.Context) error {
			return locks.Semaphore("render", 1).Do(ctx, 1, func(ctx context.Context) error {
				h, err := locks.Mutex("door").TryLock(ctx)
				require.NoError(t, err)
				return h.Unlock(ctx)
			})
		})
		require.NoError(t, err)
		// And a context without owner stays without one: two permits share nothing.
		p := stage.MustAcquire(t, locks.Semaphore("render", 1), 1)
		h, err := locks.Mutex("door").TryLock(p.Context())
		require.NoError(t, err)
		_, err = locks.Mutex("door").TryLock(p.Context())
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, h.Unlock(context.Background()))
		require.NoError(t, p.Release(context.Background()))
	})
}

// A server lost everything. Waiters queue again, and declare the limit again. The first to come
// back finds everything free, whatever the order was.
func TestWaitersForPermitsComeBackAfterLossOfData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		sem := stage.LocksOn(t, v.Client()).Semaphore("render", 2)
		held := stage.MustAcquire(t, sem, 2)
		first, _ := stage.AcquireInBackground(t.Context(), sem, 2)
		time.Sleep(time.Second)
		second, _ := stage.AcquireInBackground(t.Context(), sem, 2)
		time.Sleep(time.Minute)
		v.Server.FlushAll()
		<-held.Lost()
		var p *semaphore.Permit
		other := second
		select {
		case p = <-first:
		case p = <-second:
			other = first
		}
		time.Sleep(time.Minute)
		require.Empty(t, other)
		require.NoError(t, p.Release(t.Context()))
		require.NoError(t, (<-other).Release(t.Context()))
		time.Sleep(10 * time.Second)
		onlyLimitOf(t, v.Client(), "render")
	})
}

// Waiters whose places were lost queue again with their old tickets, in whichever order they
// notice.
func TestWaitersForPermitsKeepTheirTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		sem := stage.LocksOn(t, v.Client(), redlatch.WithHeartbeat(6*time.Second)).Semaphore("render", 3)
		held := stage.MustAcquire(t, sem, 3)
		first, _ := stage.AcquireInBackground(t.Context(), sem, 3)
		time.Sleep(700 * time.Millisecond)
		second, _ := stage.AcquireInBackground(t.Context(), sem, 2)
		time.Sleep(time.Minute)
		k := key.ForSemaphore("render")
		for range 10 {
			require.True(t, v.Server.Del(k.Queue))
			require.True(t, v.Server.Del(k.Alive))
			time.Sleep(6*time.Second + 230*time.Millisecond)
			waiters, _, err := sem.Queue(t.Context(), 0, 10)
			require.NoError(t, err)
			require.Len(t, waiters, 2)
			require.Equal(t, []int{3, 2}, []int{waiters[0].Units, waiters[1].Units})
		}
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-first).Release(t.Context()))
		require.NoError(t, (<-second).Release(t.Context()))
		time.Sleep(10 * time.Second)
		onlyLimitOf(t, v.Client(), "render")
	})
}

func TestRemovedWaiterForPermitsIsNotified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		sem := stage.LocksOn(t, v.Client()).Semaphore("render", 1)
		held := stage.MustAcquire(t, sem, 1)
		_, failed := stage.AcquireInBackground(t.Context(), sem, 1)
		time.Sleep(time.Minute)
		waiters, length, err := sem.Queue(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, 1, length)
		require.Equal(t, 1, waiters[0].Units)
		removed, err := sem.RemoveWaiter(t.Context(), waiters[0].ID)
		require.NoError(t, err)
		require.True(t, removed)
		err = <-failed
		require.ErrorIs(t, err, lockerr.ErrRemoved)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		removed, err = sem.RemoveWaiter(t.Context(), "nobody:1")
		require.NoError(t, err)
		require.False(t, removed)
		require.NoError(t, held.Release(t.Context()))
	})
}

// The rest of a ForceRelease that its caller gave up changes nothing of the caller's. The race
// detector would find that.
func TestSemaphore_AForceReleaseThatIsGivenUpSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		p, err := s.Locks.Semaphore("gate", 2).Acquire(context.Background(), 2)
		require.NoError(t, err)
		slow := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("semaphore/force_release"), Action: redistest.DelayReply(time.Second)})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		units, err := s.Locks.Semaphore("gate", 2).ForceRelease(ctx, p.ID())
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, slow.Bites())
		require.Zero(t, units)
		require.ErrorIs(t, p.Release(context.Background()), redlatch.ErrLost)
	})
}

// Errors say that a permit is released, and not unlocked. This covers Close inside a Do, and the
// errors of a Close that Redis does not answer.
func TestErrorsAboutPermitsSayRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		c := stage.LocksOn(t, v.Client())
		err := c.Semaphore("y", 1).Do(t.Context(), 1, func(context.Context) error { return c.Close(context.Background()) })
		var failed *lockerr.OpError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "release", failed.Op)
		require.ErrorContains(t, err, `release "y"`)

		link := v.Another()
		c = stage.LocksOn(t, link.Client())
		_ = stage.MustAcquire(t, c.Semaphore("z", 1), 1)
		h, err := c.Mutex("z").Lock(t.Context())
		require.NoError(t, err)
		link.Down()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err = c.Close(ctx)
		require.ErrorContains(t, err, `release "z"`)
		require.ErrorContains(t, err, `unlock "z"`)
		require.Equal(t, 1, strings.Count(err.Error(), "unlock"))
		require.ErrorContains(t, h.Unlock(t.Context()), `unlock "z"`)
		require.ErrorContains(t, new(semaphore.Permit).Release(t.Context()), "release")
		time.Sleep(time.Minute)
	})
}
