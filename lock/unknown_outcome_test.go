package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: a script ran, but the answer does not show that. It may be an error of a
// proxy, an error of a hook in go-redis, or something that is no answer. The client releases what
// the script took immediately, and does not leave it to its lease.

// ServerError is an error that go-redis takes for an answer of the server.

func TestWhatRanBehindAnErrorIsReleased(t *testing.T) {
	asking := map[string]string{"mutex": "mutex/acquire", "fair": "fair/join", "semaphore": "semaphore/acquire"}
	says := map[string]struct {
		say   func() error
		again bool // the client retries
	}{
		"an error of a proxy":    {say: func() error { return stage.ServerError("ERR upstream failure") }},
		"an error of a hook":     {say: func() error { return errors.New("the span could not be exported") }, again: true},
		"no answer of a script":  {say: func() error { return redis.Nil }},
		"the end of a goroutine": {say: func() error { runtime.Goexit(); return nil }},
		"a panic":                {say: func() error { panic("the span is nil") }},
	}
	play := func(t *testing.T, kind string, say func() error, again bool, rest func(s *stage.Scene)) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			ctx := context.Background()
			_, release, err := stage.Kinds[kind].Take(s.Locks, ctx)
			require.NoError(t, err)
			require.NoError(t, release(ctx))

			hook := &stage.DoubtfulHook{Script: asking[kind], Say: say}
			s.Client.AddHook(hook)
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, _, err = stage.Kinds[kind].Take(s.Locks, bounded)
			require.ErrorIs(t, err, redlatch.ErrIndeterminate)
			require.NotErrorIs(t, err, redlatch.ErrRefused)
			require.NotZero(t, hook.Bites.Load())
			if !again {
				require.EqualValues(t, 1, hook.Bites.Load(), "it was asked again")
				require.NoError(t, bounded.Err(), "it returns at once")
			}
			rest(s)
			other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
			started := time.Now()
			_, release, err = stage.Kinds[kind].Take(other.Locks, ctx)
			require.NoError(t, err)
			require.Zero(t, time.Since(started), "a ghost had it")
			require.NoError(t, release(ctx))
		})
	}
	for kind := range stage.Kinds {
		for name, c := range says {
			t.Run(kind+"/"+name, func(t *testing.T) {
				play(t, kind, c.say, c.again, func(*stage.Scene) { synctest.Wait() })
			})
			t.Run(kind+"/"+name+", and the client closes", func(t *testing.T) {
				play(t, kind, c.say, c.again, func(s *stage.Scene) { require.NoError(t, s.Locks.Close(context.Background())) })
			})
		}
	}
}

// A hook has a connection of its own, to an audit log or to another Redis. It fails to reach that
// after the command ran. The client releases what the command took nevertheless.
func TestAHookThatFailsElsewhereLeavesNothing(t *testing.T) {
	asking := map[string]string{"mutex": "mutex/acquire", "fair": "fair/join", "semaphore": "semaphore/acquire"}
	for what, elsewhere := range map[string]error{
		"a dial":          &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"a closed client": redis.ErrClosed,
		"a full pool":     redis.ErrPoolTimeout,
	} {
		for kind := range stage.Kinds {
			t.Run(kind+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					ctx := context.Background()
					_, release, err := stage.Kinds[kind].Take(s.Locks, ctx) // the client learns the server's clock
					require.NoError(t, err)
					require.NoError(t, release(ctx))
					hook := &stage.DoubtfulHook{Script: asking[kind], Say: func() error { return elsewhere }}
					s.Client.AddHook(hook)
					bounded, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, _, err = stage.Kinds[kind].Take(s.Locks, bounded)
					require.Error(t, err)
					require.NotZero(t, hook.Bites.Load())
					synctest.Wait()
					other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
					started := time.Now()
					_, release, err = stage.Kinds[kind].Take(other.Locks, ctx)
					require.NoError(t, err)
					require.Zero(t, time.Since(started), "a ghost has it")
					require.NoError(t, release(ctx))
				})
			})
		}
	}
}

// A release that drops many expired waiters is several commands. One reply is lost. The commands
// after it find nothing, and that is no loss.
func TestAReleaseInSeveralCommandsMayLoseAReply(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name, script, queue, alive string
		lock                       func(*redlatch.Client) (unlock func(context.Context) error, err error)
	}{
		{"fair mutex", "fair/leave", "redlatch:queue:{door}", "redlatch:alive:{door}",
			func(c *redlatch.Client) (func(context.Context) error, error) {
				h, err := c.FairMutex("door").Lock(context.Background())
				return h.Unlock, err
			}},
		{"semaphore", "semaphore/release", "redlatch:permits-queue:{door}", "redlatch:permits-alive:{door}",
			func(c *redlatch.Client) (func(context.Context) error, error) {
				p, err := c.Semaphore("door", 1).Acquire(context.Background(), 1)
				return p.Release, err
			}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			proxy := redistest.NewProxy(t, s.Addr())
			c := stage.LocksOn(t, proxy.Client())
			warm, err := kind.lock(c) // the server knows the scripts from here on
			require.NoError(t, err)
			require.NoError(t, warm(t.Context()))
			unlock, err := kind.lock(c)
			require.NoError(t, err)
			died := time.Now().Add(-time.Second)
			var queued, beats []redis.Z
			for i := range 1500 {
				member := fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d 1 5000 30000 dead", i+1)
				queued = append(queued, redis.Z{Score: float64(died.UnixMicro() + int64(i)), Member: member})
				beats = append(beats, redis.Z{Score: float64(died.UnixMilli()), Member: member})
			}
			beats = append(beats, redis.Z{Score: float64(died.UnixMilli()), Member: "grace"}) // the grace is over
			require.NoError(t, s.Control().ZAdd(t.Context(), kind.queue, queued...).Err())
			require.NoError(t, s.Control().ZAdd(t.Context(), kind.alive, beats...).Err())
			cut := proxy.Inject(redistest.Rule{
				Match: func(cmd []string) bool { return lua.ScriptName(cmd) == kind.script }, Times: 1, Action: redistest.CutReply(),
			})
			require.NoError(t, unlock(t.Context()))
			cut.Await(1)
		})
	}
}

func TestAPlaceBehindAnErrorIsGivenUp(t *testing.T) {
	queues := map[string][2]string{
		"fair": {"fair/join", "redlatch:queue:{orders}"}, "semaphore": {"semaphore/acquire", "redlatch:permits-queue:{orders}"},
	}
	for kind, q := range queues {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				ctx := context.Background()
				other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
				_, release, err := stage.Kinds[kind].Take(other.Locks, ctx)
				require.NoError(t, err)
				s.Client.AddHook(&stage.DoubtfulHook{Script: q[0], Say: func() error { return stage.ServerError("ERR upstream failure") }})
				_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
				synctest.Wait()
				require.Zero(t, s.Direct.ZCard(ctx, q[1]).Val())
				require.NoError(t, release(ctx))
			})
		})
	}
}

// panicking is a hook that panics before it sends, or dials, while it is armed.
type panicking struct{ commands, dials atomic.Bool }

func (p *panicking) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if p.dials.Load() {
			panic("the dialer is nil")
		}
		return next(ctx, network, addr)
	}
}

func (p *panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(p, next)
}

func (p *panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.commands.Load() {
			panic("the span is nil")
		}
		return next(ctx, cmd)
	}
}

// A hook that panics before it sends has sent nothing. The panic does not end the process, neither
// in calls nor in the background.
func TestAPanicOfAHookIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stage.NewRecords()
		s := stage.InBubble(t, log.Option(), redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal))
		hook := &panicking{}
		s.Client.AddHook(hook)
		h := s.Lock(context.Background())

		hook.commands.Store(true)
		started := time.Now()
		all := stage.Calls(s.Locks)
		for name, op := range all {
			err := op(context.Background())
			stage.RequireOnly(t, redlatch.ErrUnavailable, err, name)
			require.ErrorContains(t, err, "panic: the span is nil", name)
		}
		require.Zero(t, time.Since(started), "it would most likely panic again")
		require.Contains(t, log.Await(t, "panicked").Message, "a command panicked")
		time.Sleep(stage.ShortLease / 2)
		require.True(t, h.Trusted(), "renewals are tried again")
		hook.commands.Store(false)
		time.Sleep(stage.ShortLease)
		require.True(t, h.Trusted())

		hook.commands.Store(true)
		unlocking, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Unlock(unlocking), redlatch.ErrUnavailable)
		hook.commands.Store(false)
		require.NoError(t, h.Unlock(context.Background()))
		s.Free()
	})
}

// If the connection for messages cannot be made, nobody is notified of releases, and waiters poll.
func TestAWaiterSurvivesAPanicOfTheDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stage.NewRecords()
		s := stage.InBubble(t, log.Option())
		hook := &panicking{}
		s.Client.AddHook(hook)
		other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
		holder, err := other.Locks.Mutex(s.Name).Lock(context.Background())
		require.NoError(t, err)
		_, err = s.Mutex.TryLock(context.Background()) // opens a connection for commands
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		hook.dials.Store(true)
		waits := s.Wait()
		time.Sleep(time.Minute)
		require.NoError(t, holder.Unlock(context.Background()))
		s.Unlock(<-waits)
		s.NothingLeft()
		require.NotEmpty(t, log)
		(<-log).Attrs(func(a slog.Attr) bool {
			require.Contains(t, a.Value.String(), "panicked: the dialer is nil")
			return true
		})
	})
}

// odd is an error that cannot be compared with another of its type.
type odd struct{ about any }

func (odd) Error() string { return "odd" }

// An error of a hook may be of any type.
func TestAnErrorThatCannotBeComparedIsAnErrorLikeAnyOther(t *testing.T) {
	for kind, k := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				var asks, releases atomic.Bool // fail
				var said atomic.Int64
				for script, fails := range map[string]*atomic.Bool{k.Ask: &asks, k.Release: &releases} {
					s.Client.AddHook(&stage.DoubtfulHook{Script: script, Say: func() error {
						if !fails.Load() {
							return nil
						}
						said.Add(1)
						return odd{map[string]int{"a": 1}}
					}})
				}
				asks.Store(true)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, _, err := k.Take(s.Locks, ctx)
				require.ErrorIs(t, err, redlatch.ErrIndeterminate)
				require.ErrorContains(t, err, "odd")
				require.Greater(t, said.Load(), int64(1))
				asks.Store(false)
				_, release, err := k.Take(s.Locks, context.Background())
				require.NoError(t, err)
				releases.Store(true)
				ctx, cancel = context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				require.ErrorContains(t, release(ctx), "odd")
				releases.Store(false)
				time.Sleep(time.Minute)
			})
		})
	}
}

// deaf is a wrapper without pub/sub.
type deaf struct {
	redis.UniversalClient
	stub *redis.PubSub
}

func (d deaf) Subscribe(context.Context, ...string) *redis.PubSub { return d.stub }

// With a wrapper without pub/sub, waiters poll.
func TestAWrapperWithoutPubSubDoesNotEndTheProcess(t *testing.T) {
	for name, stub := range map[string]*redis.PubSub{"nil": nil, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				locks, err := redlatch.New(deaf{s.Client, stub}, stage.NewRecords().Option())
				require.NoError(t, err)
				h := s.Lock(context.Background())
				time.AfterFunc(time.Second, func() { s.Unlock(h) })
				waited, err := locks.Mutex(s.Name).Lock(context.Background())
				require.NoError(t, err)
				s.Unlock(waited)
				require.NoError(t, locks.Close(context.Background()))
			})
		})
	}
}

// A wrapper may have no client inside, because its program ignored an error.
func TestAWrapperOfNoClientIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := redlatch.New(struct{ redis.UniversalClient }{})
		require.NoError(t, err)
		for name, op := range stage.Calls(locks) {
			stage.RequireOnly(t, redlatch.ErrUnavailable, op(context.Background()), name)
		}
		require.NoError(t, locks.Close(context.Background()))
	})
}
