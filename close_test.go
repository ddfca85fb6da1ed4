package redlatch_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

func TestCloseEndsWaitersAndHolds(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		taken := b.Lock("taken")
		var waits []*stage.Asking
		leader := a.Begin(a.Ctx, "taken").Asked(2)
		waits = append(waits, leader)
		for range 3 { // behind the waiter that asks Redis
			waits = append(waits, a.Begin(a.Ctx, "taken"))
			synctest.Wait()
		}
		hold := a.Lock("door")
		waits = append(waits, a.Begin(a.Ctx, "door")) // behind a hold of its own process
		synctest.Wait()
		ctx, lost := hold.Context(), hold.Lost()
		next := b.Begin(b.Ctx, "door").Asked(2)

		start := time.Now()
		require.NoError(t, a.Close(a.Ctx))
		for _, w := range waits {
			err := w.Failed()
			require.ErrorIs(t, err, redlatch.ErrClosed)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		require.ErrorIs(t, context.Cause(ctx), redlatch.ErrClosed)
		s.Receive(lost, "the hold is notified")
		s.Unlock(next.Got())
		require.Zero(t, time.Since(start), "nobody waited for anything")
		require.ErrorIs(t, hold.Unlock(a.Ctx), redlatch.ErrClosed)
		s.Unlock(taken)
		s.NothingRemains()
	})
}

func TestCloseMayBeRepeatedAndConcurrent(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		a.Lock("door")
		slow := stage.NewSlowScript()
		a.Redis.AddHook(slow)
		slow.Arm()
		first := make(chan error, 1)
		go func() { first <- a.Close(a.Ctx) }()
		<-slow.Reached // the release has been sent and not answered
		var others sync.WaitGroup
		for range 5 {
			others.Go(func() {
				if err := a.Close(a.Ctx); err != nil {
					s.Errorf("second close: %v", err)
				}
			})
		}
		impatient, cancel := context.WithCancel(a.Ctx)
		gone := make(chan error, 1)
		go func() { gone <- a.Close(impatient) }()
		synctest.Wait()
		require.Empty(t, gone, "a second Close waits for the first")
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		close(slow.Gate)
		require.NoError(t, <-first)
		others.Wait()
		for range 100 { // an ended context changes nothing now
			require.NoError(t, a.Close(impatient))
		}
		s.NothingRemains()
	})
}

// Somebody deleted the lock. Close ends the hold before the answer to an inner Unlock reports that.
func TestAnUnlockThatCloseOvertakesSaysClosed(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		outer := a.Lock("door")
		inner, err := a.Mutex("door").Lock(outer.Context())
		require.NoError(t, err)
		slow := stage.NewSlowScript()
		a.Redis.AddHook(slow)
		slow.Arm()
		require.NoError(t, s.Admin.Del(a.Ctx, "door").Err())
		unlocked, closed := make(chan error, 1), make(chan error, 1)
		go func() { unlocked <- inner.Unlock(a.Ctx) }()
		<-slow.Reached
		go func() { closed <- a.Close(a.Ctx) }()
		<-outer.Lost()
		close(slow.Gate)
		require.ErrorIs(t, <-unlocked, redlatch.ErrClosed)
		require.NoError(t, <-closed)
	})
}

func TestCloseOfAnUnusedClient(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	locks, err := redlatch.New(rdb)
	require.NoError(t, err)
	require.NoError(t, locks.Close(t.Context()))
	_, err = locks.Mutex("door").Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrClosed)
}

func TestAfterCloseEverythingIsClosed(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		mu := a.Mutex("door")
		hold, err := mu.Lock(a.Ctx)
		require.NoError(s, err)
		inHold := hold.Context()
		require.NoError(s, a.Close(a.Ctx))
		other := b.Lock("door")

		before := a.Scripts.Load()
		for name, use := range map[string]func() error{
			"Lock":                   func() error { _, err := mu.Lock(a.Ctx); return err },
			"Lock of another":        func() error { _, err := a.Mutex("other").Lock(a.Ctx); return err },
			"Lock in the old hold":   func() error { _, err := mu.Lock(inHold); return err },
			"TryLock":                func() error { _, err := mu.TryLock(a.Ctx); return err },
			"Do":                     func() error { return mu.Do(a.Ctx, func(context.Context) error { panic("runs") }) },
			"Inspect":                func() error { _, err := mu.Inspect(a.Ctx); return err },
			"ForceRelease":           func() error { _, err := mu.ForceRelease(a.Ctx, ""); return err },
			"Unlock of the old hold": func() error { return hold.Unlock(a.Ctx) },
		} {
			for range 10 {
				require.ErrorIs(s, use(), redlatch.ErrClosed, name)
			}
		}
		s.Settle()
		require.Equal(s, before, a.Scripts.Load(), "Redis was asked")
		_, err = b.Mutex("door").TryLock(b.Ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired, "the other still has it")
		s.Unlock(other)
	})
}

// Goroutines lock and unlock while the client closes. Close releases what was granted before, and
// what is granted meanwhile.
func TestCloseUnderLoadLeavesNoLock(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		for range 20 {
			a := s.Actor()
			var all sync.WaitGroup
			for i := range 24 {
				mu := a.Mutex(fmt.Sprint("door", i%6))
				all.Go(func() {
					for {
						h, err := mu.Lock(a.Ctx)
						if err != nil {
							return
						}
						if i%2 == 0 {
							_ = h.Unlock(a.Ctx)
						}
					}
				})
			}
			for a.Scripts.Load() < 40 && !s.Virtual {
				time.Sleep(100 * time.Microsecond)
			}
			require.NoError(s, a.Close(a.Ctx))
			require.Empty(s, s.Keys(), "after Close")
			all.Wait()
			require.Empty(s, s.Keys(), "after everybody has gone")
		}
	})
}

// Redis takes a command, and answers it only when Close has returned. Nevertheless the grant is
// released, or ends with its lease.
func TestCloseDoesNotWaitForAGrantWithoutACaller(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		slow := stage.NewSlowScript()
		a.Redis.AddHook(slow)
		slow.Arm()
		waits := a.Begin(a.Ctx, "door")
		<-slow.Reached // granted, but the client does not know it
		require.NoError(t, a.Close(a.Ctx))
		require.ErrorIs(t, waits.Failed(), redlatch.ErrClosed)
		require.Empty(t, s.Keys())
		close(slow.Gate)
		synctest.Wait()
		require.Empty(t, s.Keys())
	})
}

// The command of a Lock is in flight when the client closes. A release that was sent now would
// overtake it, and the lock would stay for a lease.
func TestCloseIsNotOvertakenByAGrant(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a := s.Actor()
		reached, gate := make(chan struct{}), make(chan struct{})
		late := sync.OnceFunc(func() { close(reached); <-gate })
		a.Net.OnWrite(func(_ *stage.Wire, p []byte) bool {
			if bytes.Contains(p, []byte("evalsha")) && bytes.Contains(p, []byte("door")) {
				late()
			}
			return true
		})
		waits := a.Begin(a.Ctx, "door")
		s.Receive(reached, "the command is on its way")
		closed := make(chan error, 1)
		go func() { closed <- a.Close(a.Ctx) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(gate)
		require.NoError(t, <-closed)
		require.ErrorIs(t, waits.Failed(), redlatch.ErrClosed)
		synctest.Wait()
		require.Empty(t, s.Keys())
	})
}

func TestCloseWithoutRedisReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	faults := map[string]func(a *stage.Actor){
		"gone":   (*stage.Actor).Die,
		"silent": func(a *stage.Actor) { a.Net.BlackHole(func(*stage.Wire) bool { return true }); a.Net.Deaf.Store(true) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				const limit = time.Second
				a, b := s.Actor(redlatch.WithLease(time.Minute)), s.Actor()
				taken := b.Lock("taken")
				a.Lock("door")
				a.Lock("gate")
				waits := a.Begin(a.Ctx, "taken").Asked(2)
				chain := redlatch.WithOwner(a.Ctx)
				_, err := a.Mutex("nested").Lock(chain)
				require.NoError(t, err)
				inner, err := a.Mutex("nested").Lock(chain)
				require.NoError(t, err)
				fault(a)
				unlocked := make(chan error, 1)
				go func() { unlocked <- inner.Unlock(chain) }()
				synctest.Wait()
				reenters := a.Begin(chain, "nested") // behind the unlock
				behind := a.Begin(a.Ctx, "door")     // behind a hold that cannot be released now
				synctest.Wait()
				ctx, cancel := context.WithTimeout(a.Ctx, limit)
				defer cancel()
				start := time.Now()
				err = a.Close(ctx)
				require.LessOrEqual(t, time.Since(start), limit+50*time.Millisecond)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, `"door"`)
				require.ErrorContains(t, err, `"gate"`)
				require.ErrorIs(t, waits.Failed(), redlatch.ErrClosed)
				for _, w := range []*stage.Asking{reenters, behind} {
					require.ErrorIs(t, w.Failed(), redlatch.ErrClosed)
					require.Equal(t, start, w.At, "who waits does not wait for what is given back")
				}
				s.Unlock(taken)
				require.ElementsMatch(t, []string{"door", "gate", "nested"}, s.Keys(), "left to their leases")
				require.Error(t, <-unlocked)
				time.Sleep(time.Minute)
				require.Empty(t, s.Keys())
			})
		})
	}
}

func TestCloseReleasesAThousandHolds(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		const n = 1000
		a := s.Actor()
		var holds []*lock.Hold
		for i := range n {
			holds = append(holds, a.Lock(fmt.Sprint("door", i)))
		}
		require.Len(s, s.Keys(), n)
		before := a.Scripts.Load()
		require.NoError(s, a.Close(a.Ctx))
		require.Empty(s, s.Keys())
		if s.Virtual { // a busy server answers some too late, and Close sends these again
			require.Equal(s, int64(n), a.Scripts.Load()-before, "one release each")
		}
		for _, h := range holds {
			s.Receive(h.Lost(), "every hold is notified")
			require.ErrorIs(s, context.Cause(h.Context()), redlatch.ErrClosed)
		}
	})
}

// Redis refuses some releases. Close does all others before it retries those.
func TestCloseReleasesWhatItCanFirst(t *testing.T) {
	const bad, good = 2000, 200
	cases := map[string]redistest.Action{
		"refused": redistest.Refuse("NOPERM this user has no permissions"),
		"not yet": redistest.Refuse("LOADING Redis is loading the dataset in memory"),
	}
	for name, action := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				ctx := context.Background()
				var all []*lock.Hold
				for i := range bad + good {
					kind := "bad:"
					if i >= bad {
						kind = "good:"
					}
					h, err := s.Locks.Mutex(kind + strconv.Itoa(i)).Lock(ctx)
					require.NoError(t, err)
					all = append(all, h)
				}
				var mu sync.Mutex
				sent, again := map[string]bool{}, false // again: one was sent twice before all were sent
				s.Proxy.Inject(redistest.Rule{
					Match: func(cmd []string) bool {
						if lua.ScriptName(cmd) != "mutex/release" || !strings.HasPrefix(cmd[3], "bad:") {
							return false
						}
						mu.Lock()
						defer mu.Unlock()
						again = again || sent[cmd[3]] && len(sent) < bad
						sent[cmd[3]] = true
						return true
					},
					Action: action,
				})
				bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				closed := make(chan error, 1)
				go func() { closed <- s.Locks.Close(bounded) }()
				time.Sleep(time.Second)
				require.Empty(t, s.Direct.Keys(ctx, "good:*").Val())
				require.Error(t, <-closed)
				require.False(t, again)
				s.Proxy.Heal()
				runtime.KeepAlive(all)
			})
		})
	}
}

// twoNodes is a hook that answers CLUSTER SLOTS as a cluster of two nodes.
type twoNodes struct{}

// slots are those of the nodes. {good} is in a slot of the first, and {bad} in one of the second.
func (twoNodes) slots(context.Context) ([]redis.ClusterSlot, error) {
	return []redis.ClusterSlot{
		{End: 5000, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
		{Start: 5001, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}},
	}, nil
}

func (twoNodes) DialHook(next redis.DialHook) redis.DialHook { return next }
func (twoNodes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (n twoNodes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		slots, is := cmd.(*redis.ClusterSlotsCmd)
		if !is {
			return next(ctx, cmd)
		}
		all, err := n.slots(ctx)
		slots.SetVal(all)
		return err
	}
}

// One node of a cluster hangs. Close releases the locks of the other nodes immediately.
func TestCloseReleasesWhatItCanBesideANodeThatHangs(t *testing.T) {
	const bad, good = 400, 100
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		server := redistest.Bubble(t) // both nodes
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots:             twoNodes{}.slots,
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			PoolSize:                 10 * (bad + good),
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		rdb.AddHook(twoNodes{})
		t.Cleanup(func() { _ = rdb.Close(); time.Sleep(15 * time.Second) })
		locks, err := redlatch.New(rdb)
		require.NoError(t, err)
		var all []*lock.Hold
		for i := range bad + good {
			kind := "{bad}:"
			if i >= bad {
				kind = "{good}:"
			}
			all = append(all, stage.MustLock(t, ctx, locks.Mutex(kind+strconv.Itoa(i))))
		}
		server.Proxy.Inject(redistest.Rule{
			Match: func(cmd []string) bool {
				return lua.ScriptName(cmd) == "mutex/release" && strings.HasPrefix(cmd[3], "{bad}:")
			},
			Action: redistest.Swallow(),
		})
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- locks.Close(bounded) }()
		time.Sleep(time.Second)
		require.Empty(t, server.Client().Keys(ctx, "{good}:*").Val())
		require.Error(t, <-closed)
		server.Proxy.Heal()
		runtime.KeepAlive(all)
	})
}

// A server that hangs delays Close for as long as the leases last, for any number of leases.
func TestCloseOfVeryManyOutlastsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 5 * time.Second
		s := stage.InBubble(t, redlatch.WithLease(lease))
		ctx := context.Background()
		var all []*lock.Hold
		for i := range 2000 {
			h, err := s.Locks.Mutex("door:" + strconv.Itoa(i)).Lock(ctx)
			require.NoError(t, err)
			all = append(all, h)
		}
		s.Proxy.BlackHole(redistest.AllTraffic)
		start := time.Now()
		require.Error(t, s.Locks.Close(ctx))
		// The releases have two seconds, and then go-redis has two seconds.
		require.LessOrEqual(t, time.Since(start), lease+4*time.Second)
		s.Proxy.Heal()
		runtime.KeepAlive(all)
	})
}

// Most programs close the client because the context of the program has ended. That is no reason to
// leave the locks to their leases.
func TestCloseWithAContextThatHasEndedReleases(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				ctx, stop := context.WithCancel(t.Context())
				h, _, err := stage.Kinds[kind].Take(s.Locks, ctx)
				require.NoError(t, err)
				stop()
				began := time.Now()
				require.NoError(t, s.Locks.Close(ctx))
				require.Error(t, h.Context().Err())
				_, release, err := stage.Kinds[kind].Take(stage.LocksOn(t, s.Direct), t.Context())
				require.NoError(t, err)
				require.Less(t, time.Since(began), time.Second, "the lease was not waited for")
				require.NoError(t, release(t.Context()))
			})
		})
	}
}

// Then it has the time of one command.
func TestCloseWithAContextThatHasEndedDoesNotWaitForRedis(t *testing.T) {
	for outage, begin := range stage.Outages {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				ctx, stop := context.WithCancel(t.Context())
				h, err := s.Locks.Mutex("orders").Lock(ctx)
				require.NoError(t, err)
				stop()
				begin(&stage.Observed{Scene: s})
				began := time.Now()
				err = s.Locks.Close(ctx)
				require.ErrorContains(t, err, `"orders"`, "it says which lock is left to its lease")
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(began), stage.TimeOfOneCommand)
				require.Error(t, h.Context().Err())
				s.Proxy.Up()
				s.Proxy.Heal()
			})
		})
	}
}
