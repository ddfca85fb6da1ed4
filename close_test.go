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
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

func TestCloseEndsWaitersAndHolds(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		taken := b.lock("taken")
		var waits []*asking
		leader := a.begin(a.ctx, "taken").asked(2)
		waits = append(waits, leader)
		for range 3 { // behind the waiter that asks Redis
			waits = append(waits, a.begin(a.ctx, "taken"))
			synctest.Wait()
		}
		hold := a.lock("door")
		waits = append(waits, a.begin(a.ctx, "door")) // behind a hold of its own process
		synctest.Wait()
		ctx, lost := hold.Context(), hold.Lost()
		next := b.begin(b.ctx, "door").asked(2)

		start := time.Now()
		require.NoError(t, a.Close(a.ctx))
		for _, w := range waits {
			err := w.failed()
			require.ErrorIs(t, err, redlatch.ErrClosed)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		require.ErrorIs(t, context.Cause(ctx), redlatch.ErrClosed)
		s.receive(lost, "the hold is notified")
		s.unlock(next.got())
		require.Zero(t, time.Since(start), "nobody waited for anything")
		require.ErrorIs(t, hold.Unlock(a.ctx), redlatch.ErrClosed)
		s.unlock(taken)
		s.nothingRemains()
	})
}

func TestCloseMayBeRepeatedAndConcurrent(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor()
		a.lock("door")
		slow := newSlowScript()
		a.rdb.AddHook(slow)
		slow.arm()
		first := make(chan error, 1)
		go func() { first <- a.Close(a.ctx) }()
		<-slow.reached // the release has been sent and not answered
		var others sync.WaitGroup
		for range 5 {
			others.Go(func() {
				if err := a.Close(a.ctx); err != nil {
					s.Errorf("second close: %v", err)
				}
			})
		}
		impatient, cancel := context.WithCancel(a.ctx)
		gone := make(chan error, 1)
		go func() { gone <- a.Close(impatient) }()
		synctest.Wait()
		require.Empty(t, gone, "a second Close waits for the first")
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		close(slow.gate)
		require.NoError(t, <-first)
		others.Wait()
		for range 100 { // an ended context changes nothing now
			require.NoError(t, a.Close(impatient))
		}
		s.nothingRemains()
	})
}

// Somebody deleted the lock. Close ends the hold before the answer to an inner Unlock reports that.
func TestAnUnlockThatCloseOvertakesSaysClosed(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor()
		outer := a.lock("door")
		inner, err := a.Mutex("door").Lock(outer.Context())
		require.NoError(t, err)
		slow := newSlowScript()
		a.rdb.AddHook(slow)
		slow.arm()
		require.NoError(t, s.admin.Del(a.ctx, "door").Err())
		unlocked, closed := make(chan error, 1), make(chan error, 1)
		go func() { unlocked <- inner.Unlock(a.ctx) }()
		<-slow.reached
		go func() { closed <- a.Close(a.ctx) }()
		<-outer.Lost()
		close(slow.gate)
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
	onBoth(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		mu := a.Mutex("door")
		hold, err := mu.Lock(a.ctx)
		require.NoError(s, err)
		inHold := hold.Context()
		require.NoError(s, a.Close(a.ctx))
		other := b.lock("door")

		before := a.scripts.Load()
		for name, use := range map[string]func() error{
			"Lock":                   func() error { _, err := mu.Lock(a.ctx); return err },
			"Lock of another":        func() error { _, err := a.Mutex("other").Lock(a.ctx); return err },
			"Lock in the old hold":   func() error { _, err := mu.Lock(inHold); return err },
			"TryLock":                func() error { _, err := mu.TryLock(a.ctx); return err },
			"Do":                     func() error { return mu.Do(a.ctx, func(context.Context) error { panic("runs") }) },
			"Inspect":                func() error { _, err := mu.Inspect(a.ctx); return err },
			"ForceRelease":           func() error { _, err := mu.ForceRelease(a.ctx, ""); return err },
			"Unlock of the old hold": func() error { return hold.Unlock(a.ctx) },
		} {
			for range 10 {
				require.ErrorIs(s, use(), redlatch.ErrClosed, name)
			}
		}
		s.settle()
		require.Equal(s, before, a.scripts.Load(), "Redis was asked")
		_, err = b.Mutex("door").TryLock(b.ctx)
		require.ErrorIs(s, err, redlatch.ErrNotAcquired, "the other still has it")
		s.unlock(other)
	})
}

// Goroutines lock and unlock while the client closes. Close releases what was granted before, and
// what is granted meanwhile.
func TestCloseUnderLoadLeavesNoLock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		for range 20 {
			a := s.actor()
			var all sync.WaitGroup
			for i := range 24 {
				mu := a.Mutex(fmt.Sprint("door", i%6))
				all.Go(func() {
					for {
						h, err := mu.Lock(a.ctx)
						if err != nil {
							return
						}
						if i%2 == 0 {
							_ = h.Unlock(a.ctx)
						}
					}
				})
			}
			for a.scripts.Load() < 40 && !s.virtual {
				time.Sleep(100 * time.Microsecond)
			}
			require.NoError(s, a.Close(a.ctx))
			require.Empty(s, s.keys(), "after Close")
			all.Wait()
			require.Empty(s, s.keys(), "after everybody has gone")
		}
	})
}

// Redis takes a command, and answers it only when Close has returned. Nevertheless the grant is
// released, or ends with its lease.
func TestCloseDoesNotWaitForAGrantWithoutACaller(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor()
		slow := newSlowScript()
		a.rdb.AddHook(slow)
		slow.arm()
		waits := a.begin(a.ctx, "door")
		<-slow.reached // granted, but the client does not know it
		require.NoError(t, a.Close(a.ctx))
		require.ErrorIs(t, waits.failed(), redlatch.ErrClosed)
		require.Empty(t, s.keys())
		close(slow.gate)
		synctest.Wait()
		require.Empty(t, s.keys())
	})
}

// The command of a Lock is in flight when the client closes. A release that was sent now would
// overtake it, and the lock would stay for a lease.
func TestCloseIsNotOvertakenByAGrant(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a := s.actor()
		reached, gate := make(chan struct{}), make(chan struct{})
		late := sync.OnceFunc(func() { close(reached); <-gate })
		a.net.onWrite(func(_ *wire, p []byte) bool {
			if bytes.Contains(p, []byte("evalsha")) && bytes.Contains(p, []byte("door")) {
				late()
			}
			return true
		})
		waits := a.begin(a.ctx, "door")
		s.receive(reached, "the command is on its way")
		closed := make(chan error, 1)
		go func() { closed <- a.Close(a.ctx) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(gate)
		require.NoError(t, <-closed)
		require.ErrorIs(t, waits.failed(), redlatch.ErrClosed)
		synctest.Wait()
		require.Empty(t, s.keys())
	})
}

func TestCloseWithoutRedisReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	faults := map[string]func(a *actor){
		"gone":   (*actor).die,
		"silent": func(a *actor) { a.net.blackHole(func(*wire) bool { return true }); a.net.deaf.Store(true) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				const limit = time.Second
				a, b := s.actor(redlatch.WithLease(time.Minute)), s.actor()
				taken := b.lock("taken")
				a.lock("door")
				a.lock("gate")
				waits := a.begin(a.ctx, "taken").asked(2)
				chain := redlatch.WithOwner(a.ctx)
				_, err := a.Mutex("nested").Lock(chain)
				require.NoError(t, err)
				inner, err := a.Mutex("nested").Lock(chain)
				require.NoError(t, err)
				fault(a)
				unlocked := make(chan error, 1)
				go func() { unlocked <- inner.Unlock(chain) }()
				synctest.Wait()
				reenters := a.begin(chain, "nested") // behind the unlock
				behind := a.begin(a.ctx, "door")     // behind a hold that cannot be released now
				synctest.Wait()
				ctx, cancel := context.WithTimeout(a.ctx, limit)
				defer cancel()
				start := time.Now()
				err = a.Close(ctx)
				require.LessOrEqual(t, time.Since(start), limit+50*time.Millisecond)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, `"door"`)
				require.ErrorContains(t, err, `"gate"`)
				require.ErrorIs(t, waits.failed(), redlatch.ErrClosed)
				for _, w := range []*asking{reenters, behind} {
					require.ErrorIs(t, w.failed(), redlatch.ErrClosed)
					require.Equal(t, start, w.at, "who waits does not wait for what is given back")
				}
				s.unlock(taken)
				require.ElementsMatch(t, []string{"door", "gate", "nested"}, s.keys(), "left to their leases")
				require.Error(t, <-unlocked)
				time.Sleep(time.Minute)
				require.Empty(t, s.keys())
			})
		})
	}
}

func TestCloseReleasesAThousandHolds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(s *stage) {
		const n = 1000
		a := s.actor()
		var holds []*lock.Hold
		for i := range n {
			holds = append(holds, a.lock(fmt.Sprint("door", i)))
		}
		require.Len(s, s.keys(), n)
		before := a.scripts.Load()
		require.NoError(s, a.Close(a.ctx))
		require.Empty(s, s.keys())
		if s.virtual { // a busy server answers some too late, and Close sends these again
			require.Equal(s, int64(n), a.scripts.Load()-before, "one release each")
		}
		for _, h := range holds {
			s.receive(h.Lost(), "every hold is notified")
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
				s := inBubble(t)
				ctx := context.Background()
				var all []*lock.Hold
				for i := range bad + good {
					kind := "bad:"
					if i >= bad {
						kind = "good:"
					}
					h, err := s.locks.Mutex(kind + strconv.Itoa(i)).Lock(ctx)
					require.NoError(t, err)
					all = append(all, h)
				}
				var mu sync.Mutex
				sent, again := map[string]bool{}, false // again: one was sent twice before all were sent
				s.proxy.Inject(redistest.Rule{
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
				go func() { closed <- s.locks.Close(bounded) }()
				time.Sleep(time.Second)
				require.Empty(t, s.direct.Keys(ctx, "good:*").Val())
				require.Error(t, <-closed)
				require.False(t, again)
				s.proxy.Heal()
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
			all = append(all, mustLock(t, ctx, locks.Mutex(kind+strconv.Itoa(i))))
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
		s := inBubble(t, redlatch.WithLease(lease))
		ctx := context.Background()
		var all []*lock.Hold
		for i := range 2000 {
			h, err := s.locks.Mutex("door:" + strconv.Itoa(i)).Lock(ctx)
			require.NoError(t, err)
			all = append(all, h)
		}
		s.proxy.BlackHole(redistest.AllTraffic)
		start := time.Now()
		require.Error(t, s.locks.Close(ctx))
		// The releases have two seconds, and then go-redis has two seconds.
		require.LessOrEqual(t, time.Since(start), lease+4*time.Second)
		s.proxy.Heal()
		runtime.KeepAlive(all)
	})
}

// Most programs close the client because the context of the program has ended. That is no reason to leave
// the locks to their leases.
func TestCloseWithAContextThatHasEndedReleases(t *testing.T) {
	for _, kind := range primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				ctx, stop := context.WithCancel(t.Context())
				h, _, err := kinds[kind].take(s.locks, ctx)
				require.NoError(t, err)
				stop()
				began := time.Now()
				require.NoError(t, s.locks.Close(ctx))
				require.Error(t, h.Context().Err())
				_, release, err := kinds[kind].take(locksOn(t, s.direct), t.Context())
				require.NoError(t, err)
				require.Less(t, time.Since(began), time.Second, "the lease was not waited for")
				require.NoError(t, release(t.Context()))
			})
		})
	}
}

// Then it has the time of one command.
func TestCloseWithAContextThatHasEndedDoesNotWaitForRedis(t *testing.T) {
	for outage, begin := range outages {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				ctx, stop := context.WithCancel(t.Context())
				h, err := s.locks.Mutex("orders").Lock(ctx)
				require.NoError(t, err)
				stop()
				begin(&observed{scene: s})
				began := time.Now()
				err = s.locks.Close(ctx)
				require.ErrorContains(t, err, `"orders"`, "it says which lock is left to its lease")
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(began), timeOfOneCommand)
				require.Error(t, h.Context().Err())
				s.proxy.Up()
				s.proxy.Heal()
			})
		})
	}
}
