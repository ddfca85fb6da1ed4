package redlatch_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: with WithReplicas, nobody has a lock that too few replicas have.

// trusting is what the tests need of a hold or a permit.
type trusting interface {
	held
	Trusted() bool
}

// namedKinds acquire one kind of primitive each, by name.
var namedKinds = map[string]func(c *redlatch.Client, ctx context.Context, name string) (h trusting, release func(context.Context) error, err error){
	"mutex": func(c *redlatch.Client, ctx context.Context, name string) (trusting, func(context.Context) error, error) {
		h, err := c.Mutex(name).Lock(ctx)
		return h, h.Unlock, err
	},
	"fair": func(c *redlatch.Client, ctx context.Context, name string) (trusting, func(context.Context) error, error) {
		h, err := c.FairMutex(name).Lock(ctx)
		return h, h.Unlock, err
	},
	"semaphore": func(c *redlatch.Client, ctx context.Context, name string) (trusting, func(context.Context) error, error) {
		p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
		return p, p.Release, err
	},
}

// requireNotReplicated asserts a *NotReplicatedError with its numbers.
func requireNotReplicated(t testing.TB, err error, name string, acknowledged, needed int) {
	t.Helper()
	requireOnly(t, redlatch.ErrNotReplicated, err)
	var few *redlatch.NotReplicatedError
	require.ErrorAs(t, err, &few)
	require.Equal(t, &redlatch.NotReplicatedError{Name: name, Acknowledged: acknowledged, Needed: needed, IsPermit: few.IsPermit}, few)
	requireShowable(t, err)
}

// deafen cuts the replica off from the master, so that it gets no further writes.
func (p *pair) deafen() {
	p.Helper()
	p.replica.Pause()
	require.NoError(p, p.master.Control().Do(p.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
}

// failOverToTheDeaf makes the replica the master, which then lacks what came after deafen.
func (p *pair) failOverToTheDeaf() {
	p.Helper()
	p.master.Kill()
	p.replica.Resume()
	p.failOver()
}

// Two holders after a failover. The master grants a lock, and fails before its replica has the grant. The
// replica takes over, and grants the lock again. The first holder still trusts its hold then.
//
// With WithReplicas, the first Lock gets an error and holds nothing.
func TestTwoHoldersAfterAFailover(t *testing.T) {
	t.Parallel()
	t.Run("without WithReplicas", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		name := redistest.Name(t)
		first, second := p.locks(redlatch.WithLease(time.Minute)), p.locks()
		p.deafen()
		holders := map[string]trusting{}
		for kind, take := range namedKinds {
			h, _, err := take(first, t.Context(), name+kind)
			require.NoError(t, err, kind)
			holders[kind] = h
		}
		p.failOverToTheDeaf()
		for kind, take := range namedKinds {
			h, _, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, kind)
			require.True(t, holders[kind].Trusted(), kind)
			require.True(t, h.Trusted(), "and so does the second holder")
		}
	})
	t.Run("with WithReplicas", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		name := redistest.Name(t)
		first, second := p.locks(redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 100*time.Millisecond)), p.locks()
		p.deafen()
		for kind, take := range namedKinds {
			_, _, err := take(first, t.Context(), name+kind)
			requireNotReplicated(t, err, name+kind, 0, 1)
			_, release, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, "it is free: %s", kind)
			require.NoError(t, release(t.Context()))
		}
		p.failOverToTheDeaf()
		for kind, take := range namedKinds {
			_, _, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, kind)
		}
		require.Zero(t, redlatch.NamesInUse(first)+redlatch.PermitsInUse(first))
	})
}

// What Lock has returned, the replica has. So a failover to it that comes at once does not free the lock.
func TestALockThatAReplicaHasOutlastsAFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	name := redistest.Name(t)
	first := p.locks(redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 4*time.Second))
	second := p.locks()
	for kind, take := range namedKinds {
		_, _, err := take(first, t.Context(), name+kind)
		require.NoError(t, err, kind)
	}
	p.failOver()
	for kind, take := range namedKinds {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _, err := take(second, short, name+kind)
		cancel()
		requireOnly(t, redlatch.ErrNotAcquired, err, kind)
	}
}

// The master of each name waits for its own replica, however a wrapper or a hook treats the client.
func TestTheReplicasOfTheMasterOfALockAcknowledgeIt(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Addrs = append(o.Addrs, c.Nodes[1].Addr()) })
	// The brief clients wait for a replica that stands still.
	patient, brief := map[string]*redlatch.Client{}, map[string]*redlatch.Client{}
	for way, client := range map[string]redis.UniversalClient{"cluster": rdb, "wrapped": embedding{rdb}} {
		patient[way] = locksOn(t, client, redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 2*time.Second))
		brief[way] = locksOn(t, client, redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 200*time.Millisecond))
	}
	mine, others := namesOfShard(0, 1)[0], append(namesOfShard(1, 2), namesOfShard(2, 2)...)
	check := func(name string, acknowledged int) {
		t.Helper()
		clients := patient
		if acknowledged == 0 {
			clients = brief
		}
		for kind, take := range namedKinds {
			for way, locks := range clients {
				_, release, err := take(locks, t.Context(), name+kind)
				if acknowledged == 0 {
					requireNotReplicated(t, err, name+kind, 0, 1)
					continue
				}
				require.NoError(t, err, "%s %s", kind, way)
				require.NoError(t, release(t.Context()))
			}
		}
	}
	mine += "{" + mine + "}"
	check(mine, 1)
	c.Nodes[3].Pause() // the replica of the first master, which stays connected
	check(mine, 0)
	for _, name := range others {
		check(name+"{"+name+"}", 1)
	}
	c.Nodes[3].Resume()
	require.Eventually(t, func() bool {
		_, release, err := namedKinds["mutex"](brief["cluster"], t.Context(), mine)
		if errors.Is(err, redlatch.ErrNotReplicated) {
			return false
		}
		require.NoError(t, err)
		require.NoError(t, release(t.Context()))
		return true
	}, guard, time.Millisecond, "the replica answers again")
}

// onePerConnection is a hook that sends the commands of a pipeline one by one. Before each WAIT it takes
// the connection that is free, so that WAIT would go out on another one.
type onePerConnection struct{ rdb *redis.Client }

func (onePerConnection) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (onePerConnection) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h onePerConnection) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (failed error) {
		for _, cmd := range cmds {
			if cmd.Name() == "wait" {
				conn := h.rdb.Conn()
				defer conn.Close()
				if err := conn.Ping(ctx).Err(); err != nil {
					return err
				}
			}
			failed = errors.Join(failed, next(ctx, []redis.Cmder{cmd}))
		}
		return failed
	}
}

// WAIT is about the writes of its own connection. On another one, it counts replicas that lack the lock.
func TestAHookCannotTakeTheConnectionOfAWait(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	rdb := p.master.Client(t, func(o *redis.Options) { o.PipelinePoolSize = -1 })
	one, other := rdb.Conn(), rdb.Conn()
	require.NoError(t, errors.Join(one.Ping(t.Context()).Err(), other.Ping(t.Context()).Err(), one.Close(), other.Close()))
	p.replicated() // what has come over these connections
	rdb.AddHook(onePerConnection{rdb})
	name := redistest.Name(t)
	locks := locksOn(t, rdb)
	p.replica.Pause() // and stays connected
	_, err := locks.Mutex(name, redlatch.WithReplicas(1, 100*time.Millisecond)).Lock(t.Context())
	requireNotReplicated(t, err, name, 0, 1)
}

// With WithReplicas, every lock keeps every promise of the suite, as without it.
func TestMutexWithAReplica(t *testing.T)          { withAReplica(t, mutexOn) }
func TestFairMutexWithAReplica(t *testing.T)      { withAReplica(t, fairOn) }
func TestSemaphoreOfOneWithAReplica(t *testing.T) { withAReplica(t, semaphoreOfOneOn) }

func withAReplica(t *testing.T, subject func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject) {
	t.Parallel()
	p := newPair(t)
	dial := func(t testing.TB) redis.UniversalClient { return p.master.Client(t) }
	s := subject(dial, redlatch.WithReplicas(1, time.Second))
	s.FurtherScripts = 1
	locktest.Run(t, s)
}

// replicated is a scene in virtual time with WithReplicas(1, a second). miniredis says of every WAIT that no
// replica has anything, so tests say what the replicas do. The first rule for a WAIT counts.
func replicated(t *testing.T, options ...redlatch.Option) *scene {
	t.Helper()
	return inBubble(t, append([]redlatch.Option{redlatch.WithReplicas(1, time.Second)}, options...)...)
}

// onReplicas does something with the next times WAITs after the first skip; 0: with all of them.
func (s *scene) onReplicas(skip, times int, action redistest.Action) *redistest.Fault {
	return s.proxy.Inject(redistest.Rule{Match: redistest.Command("WAIT"), Skip: skip, Times: times, Action: action})
}

// replicas is the answer to a WAIT that so many of them have everything.
func replicas(n int) redistest.Action { return redistest.FailAfter(fmt.Sprint(":", n)) }

// holdUpWaits makes each WAIT take that long, whatever its answer is.
func (s *scene) holdUpWaits(d time.Duration) {
	s.proxy.Inject(redistest.Rule{Match: func(cmd []string) bool {
		if redistest.Command("WAIT")(cmd) {
			time.Sleep(d)
		}
		return false
	}})
}

// nothingIsHeld asserts that Redis grants locks of each kind to another client, and that the client has
// forgotten them.
func (s *scene) nothingIsHeld() {
	s.t.Helper()
	other := locksOn(s.t, s.direct)
	for kind, k := range kinds {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		_, release, err := k.take(other, ctx)
		require.NoError(s.t, err, kind)
		require.NoError(s.t, release(ctx), kind)
		cancel()
	}
	s.free()
	time.Sleep(time.Second) // a client remembers for a moment who else wanted a lock
	require.Zero(s.t, redlatch.NamesInUse(s.locks))
	require.Zero(s.t, redlatch.PermitsInUse(s.locks))
}

func TestEachFreshGrantIsAcknowledged(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				acknowledged := s.onReplicas(0, 1, replicas(1))
				ctx := context.Background()
				_, release, err := k.take(s.locks, ctx)
				require.NoError(t, err)
				require.Equal(t, 1, acknowledged.Bites())
				if kind != "semaphore" { // no time has passed, and still the renewal has written something
					require.Equal(t, 30*time.Second+time.Millisecond, s.direct.PTTL(ctx, "orders").Val())
				}
				require.NoError(t, release(ctx))
				_, _, err = k.take(s.locks, ctx)
				requireNotReplicated(t, err, "orders", 0, 1)
				s.nothingIsHeld()
			})
		})
	}
}

// More replicas than needed are enough, and fewer are not. The error says how many there were.
func TestFewerReplicasThanNeededAreTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithReplicas(2, time.Second))
		for acknowledged := range 4 {
			s.onReplicas(0, 1, replicas(acknowledged))
			h, err := s.mu.Lock(context.Background())
			if acknowledged >= 2 {
				require.NoError(t, err)
				s.unlock(h)
			} else {
				requireNotReplicated(t, err, s.name, acknowledged, 2)
			}
			s.free()
		}
		_, err := s.mu.TryLock(context.Background())
		requireNotReplicated(t, err, s.name, 0, 2)
		s.nothingIsHeld()
	})
}

// Off is off: nothing is sent that was not sent before.
func TestWithoutReplicasNobodyWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithReplicas(0, -1))
		lock := func() {
			for _, k := range kinds {
				_, release, err := k.take(s.locks, context.Background())
				require.NoError(t, err)
				require.NoError(t, release(context.Background()))
			}
		}
		lock() // and the server learns the scripts
		all := s.proxy.Inject(redistest.Rule{Match: redistest.Any()})
		lock()
		require.Equal(t, 2*len(kinds), all.Bites())
	})
}

// A re-entry is no grant.
func TestAReentryNeedsNoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t)
		s.onReplicas(0, 1, replicas(1))
		h := s.lock(context.Background())
		inner := s.lock(h.Context())
		require.Equal(t, h.Fence(), inner.Fence())
		s.unlock(inner)
		s.unlock(h)
	})
}

// A local handoff is a grant too. If too few replicas have it, the goroutine that got it has nothing, and
// the next one gets the lock.
func TestALocalHandoffIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithLocalHandoffTime(time.Hour))
		s.onReplicas(2, 1, replicas(0))
		acknowledged := s.onReplicas(0, 0, replicas(1))
		ctx := context.Background()
		first := s.lock(ctx)
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				errs[i] = s.mu.Do(ctx, func(context.Context) error { return nil })
			})
			synctest.Wait() // they wait in this order
		}
		asked := s.proxy.Inject(redistest.Rule{Match: runs("mutex/acquire")})
		s.unlock(first)
		all.Wait()
		require.NoError(t, errs[0])
		requireNotReplicated(t, errs[1], s.name, 0, 1)
		require.NoError(t, errs[2])
		require.Zero(t, asked.Bites(), "all got it from each other")
		require.Equal(t, 3, acknowledged.Bites())
		s.nothingIsHeld()
	})
}

// A client grants the lock to a waiter of another client, which learns of it by a message, or without
// messages by a heartbeat. If too few replicas have that grant, the lock goes to the next waiter.
func TestAGrantFromTheQueueIsAcknowledged(t *testing.T) {
	for kind, k := range kinds {
		for way, deaf := range map[string]bool{"message": false, "heartbeat": true} {
			t.Run(kind+" by a "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := replicated(t)
					ctx := context.Background()
					holder, next := locksOn(t, s.direct), locksOn(t, s.direct)
					_, release, err := k.take(holder, ctx)
					require.NoError(t, err)
					if deaf {
						s.proxy.Inject(redistest.Rule{Match: redistest.Command("SUBSCRIBE"), Action: redistest.Refuse("NOPERM no messages")})
					}
					queued := func(c *redlatch.Client) (got chan error) {
						got = make(chan error, 1)
						go func() {
							_, release, err := k.take(c, ctx)
							if err == nil {
								err = release(ctx)
							}
							got <- err
						}()
						time.Sleep(time.Second)
						return got
					}
					few, enough := queued(s.locks), queued(next)
					require.Zero(t, s.proxy.Forwarded("WAIT"), "nothing was granted to it")
					require.NoError(t, release(ctx))
					requireNotReplicated(t, <-few, "orders", 0, 1)
					require.NoError(t, <-enough)
					require.Equal(t, 1, s.proxy.Forwarded("WAIT"))

					_, release, err = k.take(holder, ctx)
					require.NoError(t, err)
					acknowledged := s.onReplicas(0, 0, replicas(1))
					last := queued(s.locks)
					require.NoError(t, release(ctx))
					require.NoError(t, <-last)
					require.Equal(t, 1, acknowledged.Bites())
					s.nothingIsHeld()
				})
			})
		}
	}
}

// Another call of the same chain could re-enter a lock that its chain has got. It must not see the fence
// of a grant before replicas have the grant, nor of one that they do not get.
func TestNobodyReentersAGrantBeforeReplicasHaveIt(t *testing.T) {
	for kind, ask := range map[string]func(c *redlatch.Client, ctx context.Context) (*lock.Hold, error){
		"mutex": func(c *redlatch.Client, ctx context.Context) (*lock.Hold, error) { return c.Mutex("orders").Lock(ctx) },
		"fair": func(c *redlatch.Client, ctx context.Context) (*lock.Hold, error) {
			return c.FairMutex("orders").Lock(ctx)
		},
	} {
		for granted, n := range map[string]int{"acknowledged": 1, "given back": 0} {
			t.Run(kind+" "+granted, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := replicated(t)
					const needed = 900 * time.Millisecond
					s.holdUpWaits(needed)
					s.onReplicas(0, 1, replicas(n))
					s.onReplicas(0, 0, replicas(1))
					chain := redlatch.WithOwner(context.Background())
					type result struct {
						h     *lock.Hold
						err   error
						after time.Duration
					}
					results := make(chan result, 2)
					started := time.Now()
					for range cap(results) {
						go func() {
							h, err := ask(s.locks, chain)
							results <- result{h, err, time.Since(started)}
						}()
						synctest.Wait()
					}
					first, second := <-results, <-results
					require.GreaterOrEqual(t, first.after, needed)
					if n == 1 {
						require.NoError(t, errors.Join(first.err, second.err))
						require.Equal(t, first.h.Fence(), second.h.Fence())
						require.Equal(t, first.h.ID(), second.h.ID())
						s.unlock(first.h)
					} else {
						requireNotReplicated(t, first.err, "orders", 0, 1)
						require.NoError(t, second.err)
						require.GreaterOrEqual(t, second.after, 2*needed, "it has a grant of its own")
					}
					s.unlock(second.h)
					s.nothingIsHeld()
				})
			})
		}
	}
}

// A reply that is lost says nothing about the replicas. The client asks again. If no answer comes, nobody
// knows, and the lock is given back.
func TestALostReplyOfAWaitIsNoAcknowledgement(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				ctx := context.Background()
				s.onReplicas(0, 1, redistest.CutReply())
				s.onReplicas(0, 1, replicas(1))
				_, release, err := k.take(s.locks, ctx)
				require.NoError(t, err, "the second reply came")
				require.NoError(t, release(ctx))

				lost := s.onReplicas(0, 0, redistest.LoseReply())
				started := time.Now()
				_, _, err = k.take(s.locks, ctx)
				requireOnly(t, redlatch.ErrIndeterminate, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has set no deadline")
				require.Equal(t, 1, lost.Bites())
				require.Equal(t, time.Second+2*time.Second, time.Since(started), "the timeout, and that of an attempt")
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// The server waits for replicas no longer than the caller does.
func TestAWaitEndsWithTheContextOfItsCaller(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.proxy.Record()
				within := func() (times []string) {
					for _, cmd := range s.proxy.Recorded() {
						if redistest.Command("WAIT")(cmd) {
							times = append(times, cmd[2])
						}
					}
					return times
				}
				s.onReplicas(0, 0, redistest.DelayReply(time.Minute))
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				started := time.Now()
				_, _, err := k.take(s.locks, ctx)
				requireOnly(t, redlatch.ErrIndeterminate, err)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 300*time.Millisecond, time.Since(started))
				require.Equal(t, []string{"300"}, within())
				s.settle()
				s.nothingIsHeld()

				ctx, cancel = context.WithCancel(context.Background())
				time.AfterFunc(100*time.Millisecond, cancel)
				started = time.Now()
				_, _, err = k.take(s.locks, ctx)
				requireOnly(t, redlatch.ErrIndeterminate, err)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 100*time.Millisecond, time.Since(started))
				require.Equal(t, []string{"300", "1000"}, within())
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// Close does not wait for replicas, and leaves nothing.
func TestCloseEndsTheWaitForReplicas(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				wait := s.onReplicas(0, 0, redistest.DelayReply(900*time.Millisecond))
				failed := make(chan error, 1)
				go func() { _, _, err := k.take(s.locks, context.Background()); failed <- err }()
				wait.Await(1)
				synctest.Wait()
				started := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- s.locks.Close(context.Background()) }()
				requireOnly(t, redlatch.ErrClosed, <-failed)
				require.Zero(t, time.Since(started))
				require.NoError(t, <-closed)
				s.nothingIsHeld()
			})
		})
	}
}

// A user may lack the right to WAIT, and a hook may fail. Nobody knows then what replicas have.
func TestARefusedWaitLeavesNothing(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.onReplicas(0, 1, redistest.Refuse("NOPERM this user has no permissions to run the 'wait' command"))
				_, _, err := k.take(s.locks, context.Background())
				requireOnly(t, redlatch.ErrRefused, err)
				require.ErrorContains(t, err, "'wait'")
				s.nothingIsHeld()

				s.onReplicas(0, 1, redistest.Refuse("ERR WAIT cannot be used with replica instances"))
				_, _, err = k.take(s.locks, context.Background())
				requireOnly(t, redlatch.ErrIndeterminate, err)
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// Redis may lose the lock after it has granted it. Whatever a server says of its replicas then, nobody has
// the lock.
func TestAGrantThatIsGoneBeforeReplicasHaveItIsLost(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.onReplicas(0, 0, replicas(1))
				_, release, err := k.take(s.locks, context.Background())
				require.NoError(t, err)
				require.NoError(t, release(context.Background()))
				renewals := map[string]string{"semaphore": "semaphore/renew"}
				renewal := cmp.Or(renewals[kind], "mutex/renew")
				s.proxy.Inject(redistest.Rule{Match: func(cmd []string) bool {
					if runs(renewal)(cmd) {
						require.NoError(t, s.direct.FlushAll(context.Background()).Err())
					}
					return false
				}})
				_, _, err = k.take(s.locks, context.Background())
				requireOnly(t, redlatch.ErrLost, err)
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// Trust counts from the command that replicas acknowledged, because that extended the lease.
func TestTrustCountsFromTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithLease(10*time.Second), redlatch.WithoutRenewal())
		s.onReplicas(0, 0, replicas(1))
		s.unlock(s.lock(context.Background())) // the client learns the clock
		s.proxy.Inject(redistest.Rule{Match: runs("mutex/acquire"), Action: redistest.DelayReply(time.Second)})
		started := time.Now()
		h := s.lock(context.Background())
		require.Equal(t, time.Second, time.Since(started))
		require.Equal(t, 9*time.Second, time.Until(h.TrustedUntil()))
		left, err := s.direct.PTTL(context.Background(), s.name).Result()
		require.NoError(t, err)
		require.Equal(t, 10*time.Second+time.Millisecond, left)
		s.unlock(h)
	})
}

// unreachable is a hook that reports that there is no connection for a WAIT.
type unreachable struct{}

func (unreachable) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (unreachable) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (unreachable) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[len(cmds)-1].Name() == "wait" {
			return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		return next(ctx, cmds)
	}
}

// After the grant, Redis may not be reached any more. The lock is in Redis then, so the error must not say
// that nothing was changed.
func TestAGrantWhoseReplicasCannotBeAskedIsNotNothing(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.client.AddHook(unreachable{})
				_, _, err := k.take(s.locks, context.Background())
				requireOnly(t, redlatch.ErrIndeterminate, err)
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// Trust may end while nobody answers for the replicas. A later answer does not bring it back.
func TestAGrantThatIsLostBeforeReplicasHaveItStaysLost(t *testing.T) {
	for answer, after := range map[string]time.Duration{"late": 800 * time.Millisecond, "none": time.Hour} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t, redlatch.WithLease(time.Second), redlatch.WithoutRenewal(), redlatch.WithReplicas(1, 500*time.Millisecond))
				s.onReplicas(0, 1, replicas(1))
				s.unlock(s.lock(context.Background())) // the client learns the clock
				s.proxy.Inject(redistest.Rule{Match: runs("mutex/acquire"), Times: 1, Action: redistest.DelayReply(200 * time.Millisecond)})
				s.holdUpWaits(after)
				s.onReplicas(0, 0, replicas(1))
				_, err := s.mu.Lock(context.Background())
				requireOnly(t, redlatch.ErrLost, err)
				s.settle()
				time.Sleep(2 * time.Second) // the server may still renew it, for a lease
				s.nothingIsHeld()
			})
		})
	}
}

// If go-redis obeys deadlines, a lone call sends by itself, for a moment only. Replicas may need longer.
func TestReplicasMayNeedLongerThanADirectAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }, redlatch.WithReplicas(1, time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.holdUpWaits(900 * time.Millisecond)
		s.onReplicas(0, 0, replicas(1))
		for range 3 {
			s.unlock(s.lock(ctx))
		}
		require.Equal(t, 3, s.proxy.Forwarded("WAIT"))
	})
}

// WAIT needs the connection of the command before it. New refuses a client that may send it elsewhere.
func TestReplicasNeedAClientOfOneServer(t *testing.T) {
	t.Parallel()
	rdb := unused(t)
	hidden := opaque{process: rdb.Process, subscribe: rdb.Subscribe}
	_, err := redlatch.New(hidden, redlatch.WithReplicas(2, time.Second))
	requireBad(t, err, "number of replicas", 2)
	locks := locksOn(t, hidden)
	_, err = locks.Mutex("door", redlatch.WithReplicas(2, time.Second)).Lock(t.Context())
	requireBad(t, err, "number of replicas", 2)
	for name, rdb := range wrappers(rdb) {
		_, err := redlatch.New(rdb, redlatch.WithReplicas(2, time.Second))
		require.NoError(t, err, name)
	}
	patient := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1})
	defer patient.Close()
	_, err = redlatch.New(patient, redlatch.WithReplicas(2, 15*time.Second))
	require.NoError(t, err)
}

// What a program does to its own call leaves nothing either: a context that panics, and a hook that ends
// the goroutine that sends.
func TestACallThatPanicsBeforeReplicasHaveItsGrantLeavesNothing(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				var granted atomic.Bool
				ctx := hostile{context.Background(), "Deadline", func() {
					if granted.Load() {
						panic("a context of the user")
					}
				}}
				s.onGrant(func() { granted.Store(true) })
				require.PanicsWithValue(t, "a context of the user", func() { _, _, _ = k.take(s.locks, ctx) })
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// afterScripts is a hook that runs after each script that was answered.
type afterScripts func()

// onGrant calls f once, after the answer of the script that granted a lock or a permit.
func (s *scene) onGrant(f func()) {
	f = sync.OnceFunc(f)
	s.client.AddHook(afterScripts(func() {
		if n, _ := s.direct.Exists(context.Background(), "orders", "redlatch:holders:{orders}").Result(); n > 0 {
			f()
		}
	}))
}

func (afterScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
			h()
		}
		return err
	}
}

func (h afterScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

// exitsAfterWait is a hook that ends the goroutine that sends a WAIT.
type exitsAfterWait struct{ redis.Hook }

func (exitsAfterWait) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (exitsAfterWait) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (exitsAfterWait) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if cmds[len(cmds)-1].Name() == "wait" {
			runtime.Goexit()
		}
		return err
	}
}

func TestAHookThatEndsAWaitLeavesNothing(t *testing.T) {
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.onReplicas(0, 0, replicas(1))
				s.client.AddHook(exitsAfterWait{})
				_, _, err := k.take(s.locks, context.Background())
				requireOnly(t, redlatch.ErrIndeterminate, err)
				s.settle()
				s.nothingIsHeld()
			})
		})
	}
}

// The wait timeout includes the time for replicas.
func TestTheWaitTimeoutEndsTheWaitForReplicas(t *testing.T) {
	for _, kind := range primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t, redlatch.WithWaitTimeout(300*time.Millisecond))
				s.onReplicas(0, 0, redistest.DelayReply(time.Minute))
				began := time.Now()
				_, _, err := kinds[kind].take(s.locks, t.Context())
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
				require.ErrorContains(t, err, "(WithWaitTimeout)")
				require.Equal(t, 300*time.Millisecond, time.Since(began))
				_, release, err := kinds[kind].take(locksOn(t, s.direct), t.Context())
				require.NoError(t, err)
				require.Less(t, time.Since(began), 5*time.Second, "the background has released the grant")
				require.NoError(t, release(t.Context()))
			})
		})
	}
}
