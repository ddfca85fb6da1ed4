package redlatch_test

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
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: the client does not forget a copy of a command in flight when a later
// attempt was answered. It releases the grant of the copy soon after the end of the command, and
// does not leave it to a lease.

// hasty is a scene whose attempts give up long before the end of the sent commands.
func hasty(t *testing.T) *scene {
	t.Helper()
	server := redistest.Bubble(t)
	client := server.Client(func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	s := newScene(t, server.Proxy, client, server.Client())
	s.settle = synctest.Wait
	s.unlock(s.lock(context.Background())) // the client learns the server's clock
	return s
}

// holdBack keeps the next command of a kind from the server.
func (s *scene) holdBack(kind func([]string) bool) *redistest.Fault {
	return s.proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.HoldBack()})
}

// givenBack lets the copies arrive in the given order, while nobody has the lock. It asserts that
// their grants are gone long before the end of a lease.
func (s *scene) givenBack(kept ...*redistest.Fault) {
	s.t.Helper()
	s.free()
	s.settle() // the first clean-up has found nothing
	for _, f := range kept {
		require.Equal(s.t, []int64{1}, s.letGo(f), "the ghost must be there for the test to mean anything")
	}
	require.Len(s.t, s.stored(), 1)
	time.Sleep(3 * pastItsEnd)
	s.free()
}

// begin makes another owner wait for the lock until ctx ends.
func (s *scene) begin(ctx context.Context) (hold <-chan *lock.Hold, failed <-chan error) {
	holds, errs := make(chan *lock.Hold, 1), make(chan error, 1)
	go func() {
		if h, err := s.mu.Lock(ctx); err != nil {
			errs <- err
		} else {
			holds <- h
		}
	}()
	s.settle()
	return holds, errs
}

// soon returns the hold of a waiter that gets it long before the end of a lease, or else nil.
func (s *scene) soon(hold <-chan *lock.Hold) *lock.Hold {
	select {
	case h := <-hold:
		return h
	case <-time.After(10 * time.Second): // a lease has thirty
		return nil
	}
}

// The first attempt of a Lock is still in flight when the second gets the answer that somebody else
// has the lock.
func TestCopyOfAnEarlierAttemptIsReleased(t *testing.T) {
	ctx := context.Background()
	play := func(t *testing.T, rest func(s *scene, kept *redistest.Fault)) {
		synctest.Test(t, func(t *testing.T) {
			s := hasty(t)
			require.NoError(t, s.direct.HSet(ctx, s.name, "somebody:1", 1).Err())
			rest(s, s.holdBack(anAcquire))
			s.nothingLeft()
		})
	}
	isGone := func(s *scene) { require.NoError(s.t, s.direct.Del(ctx, s.name).Err()) }
	t.Run("after the lock was had and unlocked", func(t *testing.T) {
		play(t, func(s *scene, kept *redistest.Fault) {
			hold, _ := s.begin(ctx)
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.t, 1, kept.Bites())
			isGone(s)
			require.NoError(s.t, s.direct.Publish(ctx, "redisson_lock__channel:{"+s.name+"}", "0").Err())
			h := s.soon(hold)
			require.NotNil(s.t, h)
			s.unlock(h)
			s.givenBack(kept)
		})
	})
	t.Run("after the wait was given up", func(t *testing.T) {
		play(t, func(s *scene, kept *redistest.Fault) {
			waits, cancel := context.WithCancel(ctx)
			_, failed := s.begin(waits)
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.t, 1, kept.Bites())
			// Another attempt, whose answer leaves nothing open.
			require.NoError(s.t, s.direct.Publish(ctx, "redisson_lock__channel:{"+s.name+"}", "0").Err())
			s.settle()
			cancel()
			require.ErrorIs(s.t, <-failed, redlatch.ErrNotAcquired)
			isGone(s)
			s.givenBack(kept)
		})
	})
}

// The first request for a lock or a permit is still in flight when the second is granted. It
// arrives when everything was released, and the client releases its grant too.
func TestCopyOfAGrantedRequestIsReleased(t *testing.T) {
	ctx := context.Background()
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hasty(t)
				kept := s.holdBack(runs(k.ask))
				_, release, err := k.take(s.locks, ctx)
				require.NoError(t, err)
				require.Equal(t, 1, kept.Bites())
				require.NoError(t, release(ctx))
				require.Equal(t, []int64{1}, s.letGo(kept), "the ghost must be there for the test to mean anything")
				time.Sleep(3 * pastItsEnd) // a lease has thirty seconds
				again, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, release, err = k.take(s.locks, again)
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
		s := hasty(t)
		kept := s.holdBack(anAcquire)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := s.mu.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, kept.Bites())
		time.Sleep(500 * time.Millisecond) // nobody listens for the answer any more
		s.givenBack(kept)
		s.nothingLeft()
	})
}

// A hand-over gets the answer that nobody has the lock. An earlier copy of it is still in flight,
// behind a copy of the holder's own acquire. That acquire gets the lock, and the copy hands it to a
// waiter that has left long ago.
func TestCopyOfAnEarlierHandOverIsReleased(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := hasty(t)
		acquire := s.holdBack(anAcquire)
		first := s.lock(ctx)
		require.Equal(t, 1, acquire.Bites())
		waits, cancel := context.WithCancel(ctx)
		hold, _ := s.begin(waits)
		handOver := s.holdBack(aTransfer)
		require.NoError(t, s.direct.Del(ctx, s.name).Err()) // by hand
		s.unlock(first)
		require.Equal(t, 1, handOver.Bites())
		h := s.soon(hold) // the waiter has asked for itself
		cancel()
		require.NotNil(t, h)
		s.unlock(h)
		s.givenBack(acquire, handOver)
		s.nothingLeft()
	})
}

// After a hand-over with any result, the chosen waiter gets the lock before the end of a lease.
func TestWaiterOfAFailedHandOverGetsTheLock(t *testing.T) {
	ctx := context.Background()
	cases := map[string]func(s *scene, first *lock.Hold){
		"executed, and never answered": func(s *scene, first *lock.Hold) {
			cut := s.proxy.Inject(redistest.Rule{Match: aTransfer, Action: redistest.CutReply()})
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(s.t, first.Unlock(bounded), redlatch.ErrIndeterminate)
			require.NotZero(s.t, cut.Bites())
		},
		"never executed, and never answered": func(s *scene, first *lock.Hold) {
			cut := s.proxy.Inject(redistest.Rule{Match: aTransfer, Action: redistest.CutRequest()})
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(s.t, first.Unlock(bounded), redlatch.ErrIndeterminate)
			require.NotZero(s.t, cut.Bites())
		},
		"the lock was removed before": func(s *scene, first *lock.Hold) {
			require.NoError(s.t, s.direct.Del(ctx, s.name).Err())
			require.ErrorIs(s.t, first.Unlock(ctx), redlatch.ErrLost)
		},
		"removed after an execution that was not answered": func(s *scene, first *lock.Hold) {
			cut := s.proxy.Inject(redistest.Rule{Match: aTransfer, Times: 1, Action: redistest.CutReply()})
			again := s.proxy.Inject(redistest.Rule{Match: aTransfer, Times: 1, Action: redistest.DelayRequest(time.Second)})
			unlocked := make(chan error, 1)
			go func() { unlocked <- first.Unlock(ctx) }()
			time.Sleep(500 * time.Millisecond)
			require.Equal(s.t, 1, cut.Bites())
			require.Equal(s.t, 1, again.Bites())
			require.NoError(s.t, s.direct.Del(ctx, s.name).Err())
			require.NoError(s.t, <-unlocked)
		},
		"no node has both keys, and an earlier attempt is in flight": func(s *scene, first *lock.Hold) {
			earlier := s.holdBack(aTransfer)
			split := s.proxy.Inject(redistest.Rule{Match: aTransfer, Action: redistest.Refuse("TRYAGAIN Multiple keys request during rehashing of slot")})
			require.ErrorIs(s.t, first.Unlock(ctx), redlatch.ErrIndeterminate)
			require.Equal(s.t, 1, earlier.Bites())
			require.Equal(s.t, 1, split.Bites(), "it is not sent again")
			split.Disarm()
			earlier.Release()
		},
		"refused": func(s *scene, first *lock.Hold) {
			refuse := s.proxy.Inject(redistest.Rule{Match: aTransfer, Times: 1, Action: redistest.Refuse("NOPERM no")})
			s.unlock(first)
			require.Equal(s.t, 1, refuse.Bites())
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				first := s.lock(ctx)
				waits, cancel := context.WithCancel(ctx)
				defer cancel()
				hold, _ := s.begin(waits)
				play(s, first)
				h := s.soon(hold)
				cancel() // ends the waiter, if it still waits
				require.NotNil(t, h, "it waits for ever, or for a lease that nobody has")
				s.unlock(h)
				s.nothingLeft()
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
	outage := func(t *testing.T, rest func(s *scene)) {
		synctest.Test(t, func(t *testing.T) {
			server := redistest.Bubble(t)
			client := server.Client(func(o *redis.Options) { o.PoolSize = 5 * calls })
			s := newScene(t, server.Proxy, client, server.Client(), redlatch.WithLease(time.Hour))
			s.unlock(s.lock(ctx)) // the client learns the server's clock
			time.Sleep(time.Minute)
			before := runtime.NumGoroutine()
			silent := s.proxy.Inject(redistest.Rule{Match: anAcquire, Action: redistest.DelayReply(time.Hour)})
			deaf := s.proxy.Inject(redistest.Rule{Match: aLastOne, Action: redistest.Swallow()})
			for i := range calls {
				bounded, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				_, err := s.locks.Mutex(fmt.Sprint("door", i)).Lock(bounded)
				cancel()
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
			}
			time.Sleep(time.Minute)
			// A request that shares a connection with a swallowed release never arrives. How many do,
			// the scheduler decides.
			grants := len(s.direct.Keys(ctx, "door*").Val())
			require.Equal(t, silent.Bites(), grants)
			require.Greater(t, grants, calls/2)
			require.Less(t, runtime.NumGoroutine()-before, calls/4)
			silent.Disarm()
			deaf.Disarm()
			rest(s)
			require.Empty(t, s.direct.Keys(ctx, "door*").Val())
		})
	}
	t.Run("and is made good", func(t *testing.T) {
		outage(t, func(s *scene) { time.Sleep(time.Minute) })
	})
	t.Run("and is made good by Close", func(t *testing.T) {
		outage(t, func(s *scene) { require.NoError(t, s.locks.Close(ctx)) })
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
		s := inBubble(t)
		s.unlock(s.lock(context.Background()))
		kept := s.holdBack(anAcquire)
		go func() { kept.Await(1); s.proxy.KillAll() }()
		h := s.lock(context.Background()) // by its second request
		require.Equal(t, 1, kept.Bites())
		time.Sleep(1500 * time.Millisecond)
		slow := s.proxy.Inject(redistest.Rule{Match: aLastOne, Times: 1, Action: redistest.DelayReply(time.Second)})
		released := make(chan error, 1)
		go func() { released <- h.Unlock(context.Background()) }()
		s.settle()
		require.Equal(t, 1, slow.Bites())
		time.Sleep(300 * time.Millisecond)
		require.Equal(t, []int64{1}, s.letGo(kept), "the ghost must be there for the test to mean anything")
		require.NoError(t, <-released)
		time.Sleep(time.Second)
		s.free()
		s.nothingLeft()
	})
}
