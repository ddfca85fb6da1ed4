package lock_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"runtime"
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
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/internal/test/wrapped"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: with WithReplicas, nobody has a lock that too few replicas have.

// trusting is what the tests need of a hold or a permit.
type trusting interface {
	stage.Held
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

// Two holders after a failover. The master grants a lock, and fails before its replica has the
// grant. The replica takes over, and grants the lock again. The first holder still trusts its hold
// then.
//
// With WithReplicas, the first Lock gets an error and holds nothing.
func TestTwoHoldersAfterAFailover(t *testing.T) {
	t.Parallel()
	t.Run("without WithReplicas", func(t *testing.T) {
		t.Parallel()
		p := stage.NewPair(t)
		name := redistest.Name(t)
		first, second := p.Locks(redlatch.WithLease(time.Minute)), p.Locks()
		p.Deafen()
		holders := map[string]trusting{}
		for kind, take := range namedKinds {
			h, _, err := take(first, t.Context(), name+kind)
			require.NoError(t, err, kind)
			holders[kind] = h
		}
		p.FailOverToTheDeaf()
		for kind, take := range namedKinds {
			h, _, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, kind)
			require.True(t, holders[kind].Trusted(), kind)
			require.True(t, h.Trusted(), "and so does the second holder")
		}
	})
	t.Run("with WithReplicas", func(t *testing.T) {
		t.Parallel()
		p := stage.NewPair(t)
		name := redistest.Name(t)
		first, second := p.Locks(redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 100*time.Millisecond)), p.Locks()
		p.Deafen()
		for kind, take := range namedKinds {
			_, _, err := take(first, t.Context(), name+kind)
			stage.RequireNotReplicated(t, err, name+kind, 0, 1)
			_, release, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, "it is free: %s", kind)
			require.NoError(t, release(t.Context()))
		}
		p.FailOverToTheDeaf()
		for kind, take := range namedKinds {
			_, _, err := take(second, t.Context(), name+kind)
			require.NoError(t, err, kind)
		}
		require.Zero(t, stage.NamesInUse(first)+stage.PermitsInUse(first))
	})
}

// What Lock has returned, the replica has. So a failover to it that comes at once does not free the
// lock.
func TestALockThatAReplicaHasOutlastsAFailover(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	name := redistest.Name(t)
	first := p.Locks(redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 4*time.Second))
	second := p.Locks()
	for kind, take := range namedKinds {
		_, _, err := take(first, t.Context(), name+kind)
		require.NoError(t, err, kind)
	}
	p.FailOver()
	for kind, take := range namedKinds {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _, err := take(second, short, name+kind)
		cancel()
		stage.RequireOnly(t, redlatch.ErrNotAcquired, err, kind)
	}
}

// The master of each name waits for its own replica, however a wrapper or a hook treats the client.
func TestTheReplicasOfTheMasterOfALockAcknowledgeIt(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Addrs = append(o.Addrs, c.Nodes[1].Addr()) })
	// The brief clients wait for a replica that stands still.
	patient, brief := map[string]*redlatch.Client{}, map[string]*redlatch.Client{}
	for way, client := range map[string]redis.UniversalClient{"cluster": rdb, "wrapped": wrapped.Embedding{UniversalClient: rdb}} {
		patient[way] = stage.LocksOn(t, client, redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 2*time.Second))
		brief[way] = stage.LocksOn(t, client, redlatch.WithLease(time.Minute), redlatch.WithReplicas(1, 200*time.Millisecond))
	}
	mine, others := stage.NamesOfShard(0, 1)[0], append(stage.NamesOfShard(1, 2), stage.NamesOfShard(2, 2)...)
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
					stage.RequireNotReplicated(t, err, name+kind, 0, 1)
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
	}, stage.Guard, time.Millisecond, "the replica answers again")
}

// onePerConnection is a hook that sends the commands of a pipeline one by one. Before each WAIT it
// takes the connection that is free, so that WAIT would go out on another one.
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

// WAIT is about the writes of its own connection. On another one, it counts replicas that lack the
// lock.
func TestAHookCannotTakeTheConnectionOfAWait(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	rdb := p.Master.Client(t, func(o *redis.Options) { o.PipelinePoolSize = -1 })
	one, other := rdb.Conn(), rdb.Conn()
	require.NoError(t, errors.Join(one.Ping(t.Context()).Err(), other.Ping(t.Context()).Err(), one.Close(), other.Close()))
	p.Replicated() // what has come over these connections
	rdb.AddHook(onePerConnection{rdb})
	name := redistest.Name(t)
	locks := stage.LocksOn(t, rdb)
	p.Replica.Pause() // and stays connected
	_, err := locks.Mutex(name, redlatch.WithReplicas(1, 100*time.Millisecond)).Lock(t.Context())
	stage.RequireNotReplicated(t, err, name, 0, 1)
}

// With WithReplicas, every lock keeps every promise of the suite, as without it.
func TestMutexWithAReplica(t *testing.T)          { withAReplica(t, stage.MutexOn) }
func TestFairMutexWithAReplica(t *testing.T)      { withAReplica(t, stage.FairOn) }
func TestSemaphoreOfOneWithAReplica(t *testing.T) { withAReplica(t, stage.SemaphoreOfOneOn) }

func withAReplica(t *testing.T, subject func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject) {
	t.Parallel()
	p := stage.NewPair(t)
	dial := func(t testing.TB) redis.UniversalClient { return p.Master.Client(t) }
	s := subject(dial, redlatch.WithReplicas(1, time.Second))
	s.FurtherScripts = 1
	locktest.Run(t, s)
}

// replicated is a scene in virtual time with WithReplicas(1, a second). miniredis says of every
// WAIT that no replica has anything, so tests say what the replicas do. The first rule for a WAIT
// counts.
func replicated(t *testing.T, options ...redlatch.Option) *stage.Scene {
	t.Helper()
	return stage.InBubble(t, append([]redlatch.Option{redlatch.WithReplicas(1, time.Second)}, options...)...)
}

func TestEachFreshGrantIsAcknowledged(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				acknowledged := s.OnReplicas(0, 1, stage.Replicas(1))
				ctx := context.Background()
				_, release, err := k.Take(s.Locks, ctx)
				require.NoError(t, err)
				require.Equal(t, 1, acknowledged.Bites())
				if kind != "semaphore" { // no time has passed, and still the renewal has written something
					require.Equal(t, 30*time.Second+time.Millisecond, s.Direct.PTTL(ctx, "orders").Val())
				}
				require.NoError(t, release(ctx))
				_, _, err = k.Take(s.Locks, ctx)
				stage.RequireNotReplicated(t, err, "orders", 0, 1)
				s.NothingIsHeld()
			})
		})
	}
}

// More replicas than needed are enough, and fewer are not. The error says how many there were.
func TestFewerReplicasThanNeededAreTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithReplicas(2, time.Second))
		for acknowledged := range 4 {
			s.OnReplicas(0, 1, stage.Replicas(acknowledged))
			h, err := s.Mutex.Lock(context.Background())
			if acknowledged >= 2 {
				require.NoError(t, err)
				s.Unlock(h)
			} else {
				stage.RequireNotReplicated(t, err, s.Name, acknowledged, 2)
			}
			s.Free()
		}
		_, err := s.Mutex.TryLock(context.Background())
		stage.RequireNotReplicated(t, err, s.Name, 0, 2)
		s.NothingIsHeld()
	})
}

// Off is off: nothing is sent that was not sent before.
func TestWithoutReplicasNobodyWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithReplicas(0, -1))
		lock := func() {
			for _, k := range stage.Kinds {
				_, release, err := k.Take(s.Locks, context.Background())
				require.NoError(t, err)
				require.NoError(t, release(context.Background()))
			}
		}
		lock() // and the server learns the scripts
		all := s.Proxy.Inject(redistest.Rule{Match: redistest.Any()})
		lock()
		require.Equal(t, 2*len(stage.Kinds), all.Bites())
	})
}

// A re-entry is no grant.
func TestAReentryNeedsNoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t)
		s.OnReplicas(0, 1, stage.Replicas(1))
		h := s.Lock(context.Background())
		inner := s.Lock(h.Context())
		require.Equal(t, h.Fence(), inner.Fence())
		s.Unlock(inner)
		s.Unlock(h)
	})
}

// A local handoff is a grant too. If too few replicas have it, the goroutine that got it has
// nothing, and the next one gets the lock.
func TestALocalHandoffIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithLocalHandoffTime(time.Hour))
		s.OnReplicas(2, 1, stage.Replicas(0))
		acknowledged := s.OnReplicas(0, 0, stage.Replicas(1))
		ctx := context.Background()
		first := s.Lock(ctx)
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				errs[i] = s.Mutex.Do(ctx, func(context.Context) error { return nil })
			})
			synctest.Wait() // they wait in this order
		}
		asked := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire")})
		s.Unlock(first)
		all.Wait()
		require.NoError(t, errs[0])
		stage.RequireNotReplicated(t, errs[1], s.Name, 0, 1)
		require.NoError(t, errs[2])
		require.Zero(t, asked.Bites(), "all got it from each other")
		require.Equal(t, 3, acknowledged.Bites())
		s.NothingIsHeld()
	})
}

// A client grants the lock to a waiter of another client, which learns of it by a message, or
// without messages by a heartbeat. If too few replicas have that grant, the lock goes to the next
// waiter.
func TestAGrantFromTheQueueIsAcknowledged(t *testing.T) {
	for kind, k := range stage.Kinds {
		for way, deaf := range map[string]bool{"message": false, "heartbeat": true} {
			t.Run(kind+" by a "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := replicated(t)
					ctx := context.Background()
					holder, next := stage.LocksOn(t, s.Direct), stage.LocksOn(t, s.Direct)
					_, release, err := k.Take(holder, ctx)
					require.NoError(t, err)
					if deaf {
						s.Proxy.Inject(redistest.Rule{Match: redistest.Command("SUBSCRIBE"), Action: redistest.Refuse("NOPERM no messages")})
					}
					queued := func(c *redlatch.Client) (got chan error) {
						got = make(chan error, 1)
						go func() {
							_, release, err := k.Take(c, ctx)
							if err == nil {
								err = release(ctx)
							}
							got <- err
						}()
						time.Sleep(time.Second)
						return got
					}
					few, enough := queued(s.Locks), queued(next)
					require.Zero(t, s.Proxy.Forwarded("WAIT"), "nothing was granted to it")
					require.NoError(t, release(ctx))
					stage.RequireNotReplicated(t, <-few, "orders", 0, 1)
					require.NoError(t, <-enough)
					require.Equal(t, 1, s.Proxy.Forwarded("WAIT"))

					_, release, err = k.Take(holder, ctx)
					require.NoError(t, err)
					acknowledged := s.OnReplicas(0, 0, stage.Replicas(1))
					last := queued(s.Locks)
					require.NoError(t, release(ctx))
					require.NoError(t, <-last)
					require.Equal(t, 1, acknowledged.Bites())
					s.NothingIsHeld()
				})
			})
		}
	}
}

// Another call of the same chain could re-enter a lock that its chain has got. It must not see the
// fence of a grant before replicas have the grant, nor of one that they do not get.
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
					s.HoldUpWaits(needed)
					s.OnReplicas(0, 1, stage.Replicas(n))
					s.OnReplicas(0, 0, stage.Replicas(1))
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
							h, err := ask(s.Locks, chain)
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
						s.Unlock(first.h)
					} else {
						stage.RequireNotReplicated(t, first.err, "orders", 0, 1)
						require.NoError(t, second.err)
						require.GreaterOrEqual(t, second.after, 2*needed, "it has a grant of its own")
					}
					s.Unlock(second.h)
					s.NothingIsHeld()
				})
			})
		}
	}
}

// A reply that is lost says nothing about the replicas. The client asks again. If no answer comes,
// nobody knows, and the lock is given back.
func TestALostReplyOfAWaitIsNoAcknowledgement(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				ctx := context.Background()
				s.OnReplicas(0, 1, redistest.CutReply())
				s.OnReplicas(0, 1, stage.Replicas(1))
				_, release, err := k.Take(s.Locks, ctx)
				require.NoError(t, err, "the second reply came")
				require.NoError(t, release(ctx))

				lost := s.OnReplicas(0, 0, redistest.LoseReply())
				started := time.Now()
				_, _, err = k.Take(s.Locks, ctx)
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has set no deadline")
				require.Equal(t, 1, lost.Bites())
				require.Equal(t, time.Second+2*time.Second, time.Since(started), "the timeout, and that of an attempt")
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
}

// The server waits for replicas no longer than the caller does.
func TestAWaitEndsWithTheContextOfItsCaller(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.Proxy.Record()
				within := func() (times []string) {
					for _, cmd := range s.Proxy.Recorded() {
						if redistest.Command("WAIT")(cmd) {
							times = append(times, cmd[2])
						}
					}
					return times
				}
				s.OnReplicas(0, 0, redistest.DelayReply(time.Minute))
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				started := time.Now()
				_, _, err := k.Take(s.Locks, ctx)
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 300*time.Millisecond, time.Since(started))
				require.Equal(t, []string{"300"}, within())
				s.Settle()
				s.NothingIsHeld()

				ctx, cancel = context.WithCancel(context.Background())
				time.AfterFunc(100*time.Millisecond, cancel)
				started = time.Now()
				_, _, err = k.Take(s.Locks, ctx)
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 100*time.Millisecond, time.Since(started))
				require.Equal(t, []string{"300", "1000"}, within())
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
}

// Close does not wait for replicas, and leaves nothing.
func TestCloseEndsTheWaitForReplicas(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				wait := s.OnReplicas(0, 0, redistest.DelayReply(900*time.Millisecond))
				failed := make(chan error, 1)
				go func() { _, _, err := k.Take(s.Locks, context.Background()); failed <- err }()
				wait.Await(1)
				synctest.Wait()
				started := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- s.Locks.Close(context.Background()) }()
				stage.RequireOnly(t, redlatch.ErrClosed, <-failed)
				require.Zero(t, time.Since(started))
				require.NoError(t, <-closed)
				s.NothingIsHeld()
			})
		})
	}
}

// A user may lack the right to WAIT, and a hook may fail. Nobody knows then what replicas have.
func TestARefusedWaitLeavesNothing(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.OnReplicas(0, 1, redistest.Refuse("NOPERM this user has no permissions to run the 'wait' command"))
				_, _, err := k.Take(s.Locks, context.Background())
				stage.RequireOnly(t, redlatch.ErrRefused, err)
				require.ErrorContains(t, err, "'wait'")
				s.NothingIsHeld()

				s.OnReplicas(0, 1, redistest.Refuse("ERR WAIT cannot be used with replica instances"))
				_, _, err = k.Take(s.Locks, context.Background())
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
}

// Redis may lose the lock after it has granted it. Whatever a server says of its replicas then,
// nobody has the lock.
func TestAGrantThatIsGoneBeforeReplicasHaveItIsLost(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.OnReplicas(0, 0, stage.Replicas(1))
				_, release, err := k.Take(s.Locks, context.Background())
				require.NoError(t, err)
				require.NoError(t, release(context.Background()))
				renewals := map[string]string{"semaphore": "semaphore/renew"}
				renewal := cmp.Or(renewals[kind], "mutex/renew")
				s.Proxy.Inject(redistest.Rule{Match: func(cmd []string) bool {
					if stage.Runs(renewal)(cmd) {
						require.NoError(t, s.Direct.FlushAll(context.Background()).Err())
					}
					return false
				}})
				_, _, err = k.Take(s.Locks, context.Background())
				stage.RequireOnly(t, redlatch.ErrLost, err)
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
}

// Trust counts from the command that replicas acknowledged, because that extended the lease.
func TestTrustCountsFromTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := replicated(t, redlatch.WithLease(10*time.Second), redlatch.WithoutRenewal())
		s.OnReplicas(0, 0, stage.Replicas(1))
		s.Unlock(s.Lock(context.Background())) // the client learns the clock
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Action: redistest.DelayReply(time.Second)})
		started := time.Now()
		h := s.Lock(context.Background())
		require.Equal(t, time.Second, time.Since(started))
		require.Equal(t, 9*time.Second, time.Until(h.TrustedUntil()))
		left, err := s.Direct.PTTL(context.Background(), s.Name).Result()
		require.NoError(t, err)
		require.Equal(t, 10*time.Second+time.Millisecond, left)
		s.Unlock(h)
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

// After the grant, Redis may not be reached any more. The lock is in Redis then, so the error must
// not say that nothing was changed.
func TestAGrantWhoseReplicasCannotBeAskedIsNotNothing(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.Client.AddHook(unreachable{})
				_, _, err := k.Take(s.Locks, context.Background())
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				s.Settle()
				s.NothingIsHeld()
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
				s.OnReplicas(0, 1, stage.Replicas(1))
				s.Unlock(s.Lock(context.Background())) // the client learns the clock
				s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayReply(200 * time.Millisecond)})
				s.HoldUpWaits(after)
				s.OnReplicas(0, 0, stage.Replicas(1))
				_, err := s.Mutex.Lock(context.Background())
				stage.RequireOnly(t, redlatch.ErrLost, err)
				s.Settle()
				time.Sleep(2 * time.Second) // the server may still renew it, for a lease
				s.NothingIsHeld()
			})
		})
	}
}

// If go-redis obeys deadlines, a lone call sends by itself, for a moment only. Replicas may need
// longer.
func TestReplicasMayNeedLongerThanADirectAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }, redlatch.WithReplicas(1, time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.HoldUpWaits(900 * time.Millisecond)
		s.OnReplicas(0, 0, stage.Replicas(1))
		for range 3 {
			s.Unlock(s.Lock(ctx))
		}
		require.Equal(t, 3, s.Proxy.Forwarded("WAIT"))
	})
}

// WAIT needs the connection of the command before it. New refuses a client that may send it
// elsewhere.
func TestReplicasNeedAClientOfOneServer(t *testing.T) {
	t.Parallel()
	rdb := stage.Unused(t)
	hidden := wrapped.Opaque{OnProcess: rdb.Process, OnSubscribe: rdb.Subscribe}
	_, err := redlatch.New(hidden, redlatch.WithReplicas(2, time.Second))
	stage.RequireBad(t, err, "number of replicas", 2)
	locks := stage.LocksOn(t, hidden)
	_, err = locks.Mutex("door", redlatch.WithReplicas(2, time.Second)).Lock(t.Context())
	stage.RequireBad(t, err, "number of replicas", 2)
	for name, rdb := range wrapped.All(rdb) {
		_, err := redlatch.New(rdb, redlatch.WithReplicas(2, time.Second))
		require.NoError(t, err, name)
	}
	patient := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1})
	defer patient.Close()
	_, err = redlatch.New(patient, redlatch.WithReplicas(2, 15*time.Second))
	require.NoError(t, err)
}

// What a program does to its own call leaves nothing either: a context that panics, and a hook that
// ends the goroutine that sends.
func TestACallThatPanicsBeforeReplicasHaveItsGrantLeavesNothing(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				var granted atomic.Bool
				ctx := stage.HostileContext{Context: context.Background(), Method: "Deadline", Act: func() {
					if granted.Load() {
						panic("a context of the user")
					}
				}}
				s.OnGrant(func() { granted.Store(true) })
				require.PanicsWithValue(t, "a context of the user", func() { _, _, _ = k.Take(s.Locks, ctx) })
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
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
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t)
				s.OnReplicas(0, 0, stage.Replicas(1))
				s.Client.AddHook(exitsAfterWait{})
				_, _, err := k.Take(s.Locks, context.Background())
				stage.RequireOnly(t, redlatch.ErrIndeterminate, err)
				s.Settle()
				s.NothingIsHeld()
			})
		})
	}
}

// The wait timeout includes the time for replicas.
func TestTheWaitTimeoutEndsTheWaitForReplicas(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := replicated(t, redlatch.WithWaitTimeout(300*time.Millisecond))
				s.OnReplicas(0, 0, redistest.DelayReply(time.Minute))
				began := time.Now()
				_, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
				require.ErrorContains(t, err, "(WithWaitTimeout)")
				require.Equal(t, 300*time.Millisecond, time.Since(began))
				_, release, err := stage.Kinds[kind].Take(stage.LocksOn(t, s.Direct), t.Context())
				require.NoError(t, err)
				require.Less(t, time.Since(began), 5*time.Second, "the background has released the grant")
				require.NoError(t, release(t.Context()))
			})
		})
	}
}
