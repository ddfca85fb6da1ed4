package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: the client does not forget a copy of a command in flight when a later
// attempt was answered. It releases the grant of the copy soon after the end of the command, and
// does not leave it to a lease.

// The first attempt of a Lock is still in flight when the second gets the answer that somebody else
// has the lock.
func TestCopyOfAnEarlierAttemptIsReleased(t *testing.T) {
	ctx := context.Background()
	play := func(t *testing.T, rest func(s *stage.Scene, kept *redistest.Fault)) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InHastyBubble(t)
			require.NoError(t, s.Direct.HSet(ctx, s.Name, "somebody:1", 1).Err())
			rest(s, s.HoldBack(stage.AnAcquire))
			s.NothingLeft()
		})
	}
	isGone := func(s *stage.Scene) { require.NoError(s.T, s.Direct.Del(ctx, s.Name).Err()) }
	t.Run("after the lock was had and unlocked", func(t *testing.T) {
		play(t, func(s *stage.Scene, kept *redistest.Fault) {
			hold, _ := s.Begin(ctx)
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.T, 1, kept.Bites())
			isGone(s)
			require.NoError(s.T, s.Direct.Publish(ctx, "redisson_lock__channel:{"+s.Name+"}", "0").Err())
			h := s.Soon(hold)
			require.NotNil(s.T, h)
			s.Unlock(h)
			s.GivenBack(kept)
		})
	})
	t.Run("after the wait was given up", func(t *testing.T) {
		play(t, func(s *stage.Scene, kept *redistest.Fault) {
			waits, cancel := context.WithCancel(ctx)
			_, failed := s.Begin(waits)
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.T, 1, kept.Bites())
			// Another attempt, whose answer leaves nothing open.
			require.NoError(s.T, s.Direct.Publish(ctx, "redisson_lock__channel:{"+s.Name+"}", "0").Err())
			s.Settle()
			cancel()
			require.ErrorIs(s.T, <-failed, redlatch.ErrNotAcquired)
			isGone(s)
			s.GivenBack(kept)
		})
	})
}

// The first request for a lock or a permit is still in flight when the second is granted. It
// arrives when everything was released, and the client releases its grant too.
func TestCopyOfAGrantedRequestIsReleased(t *testing.T) {
	ctx := context.Background()
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InHastyBubble(t)
				kept := s.HoldBack(stage.Runs(k.Ask))
				_, release, err := k.Take(s.Locks, ctx)
				require.NoError(t, err)
				require.Equal(t, 1, kept.Bites())
				require.NoError(t, release(ctx))
				require.Equal(t, []int64{1}, s.LetGo(kept), "the ghost must be there for the test to mean anything")
				time.Sleep(3 * stage.PastItsEnd) // a lease has thirty seconds
				again, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, release, err = k.Take(s.Locks, again)
				require.NoError(t, err)
				require.NoError(t, release(ctx))
			})
		})
	}
}

// A command is held back until its caller has left and cleaned up, and until its connection was
// given up. Then the command is void, or the client releases its grant soon after its end.
func TestGrantThatArrivesAfterTheCleanUpIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InHastyBubble(t)
		kept := s.HoldBack(stage.AnAcquire)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, kept.Bites())
		time.Sleep(500 * time.Millisecond) // nobody listens for the answer any more
		s.GivenBack(kept)
		s.NothingLeft()
	})
}

// A hand-over gets the answer that nobody has the lock. An earlier copy of it is still in flight,
// behind a copy of the holder's own acquire. That acquire gets the lock, and the copy hands it to a
// waiter that has left long ago.
func TestCopyOfAnEarlierHandOverIsReleased(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := stage.InHastyBubble(t)
		acquire := s.HoldBack(stage.AnAcquire)
		first := s.Lock(ctx)
		require.Equal(t, 1, acquire.Bites())
		waits, cancel := context.WithCancel(ctx)
		hold, _ := s.Begin(waits)
		handOver := s.HoldBack(stage.ATransfer)
		require.NoError(t, s.Direct.Del(ctx, s.Name).Err()) // by hand
		s.Unlock(first)
		require.Equal(t, 1, handOver.Bites())
		h := s.Soon(hold) // the waiter has asked for itself
		cancel()
		require.NotNil(t, h)
		s.Unlock(h)
		s.GivenBack(acquire, handOver)
		s.NothingLeft()
	})
}

// After a hand-over with any result, the chosen waiter gets the lock before the end of a lease.
func TestWaiterOfAFailedHandOverGetsTheLock(t *testing.T) {
	ctx := context.Background()
	cases := map[string]func(s *stage.Scene, first *lock.Hold){
		"executed, and never answered": func(s *stage.Scene, first *lock.Hold) {
			cut := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Action: redistest.CutReply()})
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(s.T, first.Unlock(bounded), redlatch.ErrIndeterminate)
			require.NotZero(s.T, cut.Bites())
		},
		"never executed, and never answered": func(s *stage.Scene, first *lock.Hold) {
			cut := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Action: redistest.CutRequest()})
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(s.T, first.Unlock(bounded), redlatch.ErrIndeterminate)
			require.NotZero(s.T, cut.Bites())
		},
		"the lock was removed before": func(s *stage.Scene, first *lock.Hold) {
			require.NoError(s.T, s.Direct.Del(ctx, s.Name).Err())
			require.ErrorIs(s.T, first.Unlock(ctx), redlatch.ErrLost)
		},
		"removed after an execution that was not answered": func(s *stage.Scene, first *lock.Hold) {
			cut := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.CutReply()})
			again := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.DelayRequest(time.Second)})
			unlocked := make(chan error, 1)
			go func() { unlocked <- first.Unlock(ctx) }()
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.T, 1, cut.Bites())
			require.Equal(s.T, 1, again.Bites())
			require.NoError(s.T, s.Direct.Del(ctx, s.Name).Err())
			require.NoError(s.T, <-unlocked)
		},
		"no node has both keys, and an earlier attempt is in flight": func(s *stage.Scene, first *lock.Hold) {
			earlier := s.HoldBack(stage.ATransfer)
			split := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Action: redistest.Refuse("TRYAGAIN Multiple keys request during rehashing of slot")})
			require.ErrorIs(s.T, first.Unlock(ctx), redlatch.ErrIndeterminate)
			require.Equal(s.T, 1, earlier.Bites())
			require.Equal(s.T, 1, split.Bites(), "it is not sent again")
			split.Disarm()
			earlier.Release()
		},
		"refused": func(s *stage.Scene, first *lock.Hold) {
			refuse := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.Refuse("NOPERM no")})
			s.Unlock(first)
			require.Equal(s.T, 1, refuse.Bites())
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				first := s.Lock(ctx)
				waits, cancel := context.WithCancel(ctx)
				defer cancel()
				hold, _ := s.Begin(waits)
				play(s, first)
				h := s.Soon(hold)
				cancel() // ends the waiter, if it still waits
				require.NotNil(t, h, "it waits for ever, or for a lease that nobody has")
				s.Unlock(h)
				s.NothingLeft()
			})
		})
	}
}

// For a while, Redis runs requests and answers nothing. A thousand calls that fail meanwhile leave
// hundreds of grants and a few goroutines. Then the client releases all grants, long before the end
// of a lease.
func TestOutageCostsNoGoroutineForEachCall(t *testing.T) {
	ctx := context.Background()
	const calls = 1000
	outage := func(t *testing.T, rest func(s *stage.Scene)) {
		synctest.Test(t, func(t *testing.T) {
			server := redistest.Bubble(t)
			client := server.Client(func(o *redis.Options) { o.PoolSize = 5 * calls })
			s := stage.NewScene(t, server.Proxy, client, server.Client(), redlatch.WithLease(time.Hour))
			s.Unlock(s.Lock(ctx)) // the client learns the server's clock
			time.Sleep(time.Minute)
			before := runtime.NumGoroutine()
			silent := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Action: redistest.DelayReply(time.Hour)})
			deaf := s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Action: redistest.Swallow()})
			for i := range calls {
				bounded, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				_, err := s.Locks.Mutex(fmt.Sprint("door", i)).Lock(bounded)
				cancel()
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
			}
			time.Sleep(time.Minute)
			// A request that shares a connection with a swallowed release never arrives. How many
			// do, the scheduler decides.
			grants := len(s.Direct.Keys(ctx, "door*").Val())
			require.Equal(t, silent.Bites(), grants)
			require.Greater(t, grants, calls/2)
			require.Less(t, runtime.NumGoroutine()-before, calls/4)
			silent.Disarm()
			deaf.Disarm()
			rest(s)
			require.Empty(t, s.Direct.Keys(ctx, "door*").Val())
		})
	}
	t.Run("and is made good", func(t *testing.T) {
		outage(t, func(s *stage.Scene) { time.Sleep(time.Minute) })
	})
	t.Run("and is made good by Close", func(t *testing.T) {
		outage(t, func(s *stage.Scene) { require.NoError(t, s.Locks.Close(ctx)) })
	})
}

// takers acquire one kind of primitive, by the script that requests it.
var takers = map[string]func(c *redlatch.Client, ctx context.Context) (release func(context.Context) error, err error){
	"mutex/acquire": func(c *redlatch.Client, ctx context.Context) (func(context.Context) error, error) {
		h, err := c.Mutex("orders").Lock(ctx)
		return h.Unlock, err
	},
	"fair/join": func(c *redlatch.Client, ctx context.Context) (func(context.Context) error, error) {
		h, err := c.FairMutex("orders").Lock(ctx)
		return h.Unlock, err
	},
	"semaphore/acquire": func(c *redlatch.Client, ctx context.Context) (func(context.Context) error, error) {
		p, err := c.Semaphore("orders", 1).Acquire(ctx, 1)
		return p.Release, err
	},
}

// A release may be faster than the request that it should undo, on another connection. It finds
// nothing, and then the request arrives and is granted. As soon as the client gets that answer, it
// releases the grant again, at nobody's cost. It does not wait until the request would be void. The
// same holds if the client closes meanwhile.
func TestRequestThatArrivesAfterItsReleaseIsReleasedAtOnce(t *testing.T) {
	const late = 50 * time.Millisecond
	play := func(t *testing.T, script string, then func(c *redlatch.Client)) {
		synctest.Test(t, func(t *testing.T) {
			ctx, take := context.Background(), takers[script]
			server := redistest.Bubble(t)
			var clients [2]*redlatch.Client
			for i := range clients {
				c, err := redlatch.New(server.Client())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close(ctx)) })
				release, err := take(c, ctx) // the client learns the server's clock, and the server has the scripts
				require.NoError(t, err)
				require.NoError(t, release(ctx))
				clients[i] = c
			}
			slow := server.Inject(redistest.Rule{
				Match: func(cmd []string) bool { return lua.ScriptName(cmd) == script }, Times: 1, Action: redistest.DelayRequest(late),
			})
			bounded, cancel := context.WithTimeout(ctx, late/5)
			defer cancel()
			_, err := take(clients[0], bounded)
			require.ErrorIs(t, err, redlatch.ErrIndeterminate)
			require.Equal(t, 1, slow.Bites())

			then(clients[0])
			time.Sleep(2 * late)
			started := time.Now()
			release, err := take(clients[1], ctx)
			require.NoError(t, err)
			require.Zero(t, time.Since(started), "somebody had it whom nobody knows")
			require.NoError(t, release(ctx))
		})
	}
	for script := range takers {
		t.Run(script, func(t *testing.T) {
			play(t, script, func(*redlatch.Client) {})
		})
		t.Run(script+", and its client closes", func(t *testing.T) {
			play(t, script, func(c *redlatch.Client) { require.NoError(t, c.Close(context.Background())) })
		})
	}
}

// A request that broke off arrives after the release of the lock, and before the answer to the
// release. By then, the client believes that the request is void, and that nothing is in flight.
func TestRequestThatArrivesBeforeItsReleaseIsAnsweredIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Unlock(s.Lock(context.Background()))
		kept := s.HoldBack(stage.AnAcquire)
		go func() { kept.Await(1); s.Proxy.KillAll() }()
		h := s.Lock(context.Background()) // by its second request
		require.Equal(t, 1, kept.Bites())
		time.Sleep(1500 * time.Millisecond)
		slow := s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Times: 1, Action: redistest.DelayReply(time.Second)})
		released := make(chan error, 1)
		go func() { released <- h.Unlock(context.Background()) }()
		s.Settle()
		require.Equal(t, 1, slow.Bites())
		time.Sleep(300 * time.Millisecond)
		require.Equal(t, []int64{1}, s.LetGo(kept), "the ghost must be there for the test to mean anything")
		require.NoError(t, <-released)
		time.Sleep(time.Second)
		s.Free()
		s.NothingLeft()
	})
}
