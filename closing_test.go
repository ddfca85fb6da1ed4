package redlatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: Close obeys its context, whatever the client has and whoever calls it. If
// many holds have something in common, the log says it once.

// Any number of holds are on a server that hangs. Close returns when its context ends, and all
// holders have been notified long before.
func TestCloseOnAServerThatHangsKeepsToItsContext(t *testing.T) {
	const each = 320
	for _, limit := range []time.Duration{time.Second, 100 * time.Millisecond} { // after all releases began, or before
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { closeOnAServerThatHangs(t, each, limit) })
		})
	}
}

func closeOnAServerThatHangs(t *testing.T, each int, limit time.Duration) {
	s := stage.InBubble(t)
	ctx := context.Background()
	var holds []stage.Held
	var lost []<-chan struct{}
	for i := range each {
		h, err := s.Locks.Mutex(fmt.Sprint("door", i)).Lock(ctx)
		require.NoError(t, err)
		p, err := s.Locks.Semaphore("gate", each).Acquire(ctx, 1)
		require.NoError(t, err)
		holds, lost = append(holds, h, p), append(lost, h.Lost(), p.Lost())
	}
	s.Proxy.BlackHole(redistest.AllTraffic)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	started := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- s.Locks.Close(bounded) }()
	synctest.Wait()
	for _, l := range lost {
		requireClosed(t, l, "a holder was not notified at once")
	}
	require.Equal(t, started, time.Now())
	err := <-closed
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.LessOrEqual(t, time.Since(started), limit+50*time.Millisecond)
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 4096, "it names a few and counts the others")
	runtime.KeepAlive(holds)
}

func requireClosed(t *testing.T, c <-chan struct{}, message string) {
	t.Helper()
	select {
	case <-c:
	default:
		require.Fail(t, message)
	}
}

// A server that answers slowly gets the release of every hold while there is time.
func TestCloseAsksForEveryHoldWhileThereIsTime(t *testing.T) {
	const holds = 320
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		var all []*lock.Hold
		for i := range holds {
			h, err := s.Locks.Mutex(fmt.Sprint("door", i)).Lock(ctx)
			require.NoError(t, err)
			all = append(all, h)
		}
		s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Action: redistest.DelayReply(100 * time.Millisecond)})
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.NoError(t, s.Locks.Close(bounded))
		require.Empty(t, s.Direct.Keys(ctx, "door*").Val())
		runtime.KeepAlive(all)
	})
}

// closers call Close in places where a program may do so as a side effect.
func TestCloseMayBeCalledFromAnywhere(t *testing.T) {
	ctx := context.Background()
	cases := map[string]func(t *testing.T, s *stage.Scene){
		"the body of Do": func(t *testing.T, s *stage.Scene) {
			err := s.Mutex.Do(ctx, func(ctx context.Context) error { return s.Locks.Close(ctx) })
			require.ErrorIs(t, err, redlatch.ErrClosed)
			require.NotErrorIs(t, err, context.Canceled)
		},
		"the body of a semaphore's Do, in a lock's": func(t *testing.T, s *stage.Scene) {
			err := s.Mutex.Do(ctx, func(ctx context.Context) error {
				return s.Locks.Semaphore("gate", 2).Do(ctx, 1, func(context.Context) error { return s.Locks.Close(context.Background()) })
			})
			require.ErrorIs(t, err, redlatch.ErrClosed)
		},
		"who watches Lost": func(t *testing.T, s *stage.Scene) {
			h := s.Lock(ctx)
			closed := make(chan error, 1)
			go func() { <-h.Lost(); closed <- s.Locks.Close(ctx) }()
			require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
			require.NoError(t, <-closed)
		},
		"AfterFunc of a hold": func(t *testing.T, s *stage.Scene) {
			h := s.Lock(ctx)
			closed := make(chan error, 1)
			context.AfterFunc(h.Context(), func() { closed <- s.Locks.Close(ctx) })
			s.Unlock(h)
			require.NoError(t, <-closed)
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				play(t, s)
				require.NoError(t, s.Locks.Close(ctx), "it has been closed")
				require.Empty(t, s.Stored())
			})
		})
	}
}

// brokenContext is a context with one method that panics.
type brokenContext struct {
	context.Context
	method string
}

func (c *brokenContext) called(method string) {
	if c.method == method {
		panic("a context without " + method)
	}
}

func (c *brokenContext) Deadline() (time.Time, bool) {
	c.called("Deadline")
	return c.Context.Deadline()
}
func (c *brokenContext) Done() <-chan struct{} { c.called("Done"); return c.Context.Done() }
func (c *brokenContext) Err() error            { c.called("Err"); return c.Context.Err() }
func (c *brokenContext) Value(key any) any     { c.called("Value"); return c.Context.Value(key) }

// A server recovers from panics of its handlers. It goes on with a client that was not closed.
func TestAContextThatPanicsClosesNothing(t *testing.T) {
	var missing *brokenContext
	contexts := map[string]context.Context{"a typed nil": missing}
	for _, method := range []string{"Deadline", "Done", "Err", "Value"} {
		contexts[method] = &brokenContext{context.Background(), method}
	}
	for name, broken := range contexts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h := s.Lock(context.Background())
				require.Panics(t, func() { _ = s.Locks.Close(broken) })
				time.Sleep(time.Minute)
				require.True(t, h.Trusted(), "the client goes on")
				require.NoError(t, s.Locks.Close(context.Background()))
				require.Empty(t, s.Stored())
				require.ErrorIs(t, context.Cause(h.Context()), redlatch.ErrClosed)
			})
		})
	}
}

// Close does not wait for a notice, because the notice may be what calls Close. The client gives up
// the place in the queue nevertheless, before Close returns.
func TestCloseFromAWaitCallbackReturns(t *testing.T) {
	waits := map[string]func(c *redlatch.Client, notice redlatch.LockOption) error{
		"fair": func(c *redlatch.Client, notice redlatch.LockOption) error {
			_, err := c.FairMutex("orders", notice).Lock(context.Background())
			return err
		},
		"semaphore": func(c *redlatch.Client, notice redlatch.LockOption) error {
			_, err := c.Semaphore("orders", 1, notice).Acquire(context.Background(), 1)
			return err
		},
	}
	queues := map[string]string{"fair": "redlatch:queue:{orders}", "semaphore": "redlatch:permits-queue:{orders}"}
	for kind, wait := range waits {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
				_, release, err := stage.Kinds[kind].Take(other.Locks, context.Background())
				require.NoError(t, err)
				var closed error
				var left int64
				err = wait(s.Locks, redlatch.WithWaitCallback(func(lock.Waiting) {
					bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					closed = s.Locks.Close(bounded)
					left = s.Direct.ZCard(context.Background(), queues[kind]).Val()
				}))
				require.ErrorIs(t, err, redlatch.ErrClosed)
				require.NoError(t, closed)
				require.Zero(t, left, "the place is given up")
				require.NoError(t, release(context.Background()))
			})
		})
	}
}

// A notice that blocks does not delay Close. Its waiter gets the result when the notice returns.
func TestCloseDoesNotWaitForACallbackThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		other := stage.NewScene(t, s.Proxy, s.Direct, s.Direct)
		_, release, err := stage.Kinds["fair"].Take(other.Locks, ctx)
		require.NoError(t, err)
		gate, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := s.Locks.FairMutex("orders", redlatch.WithWaitCallback(func(lock.Waiting) { <-gate })).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.NoError(t, s.Locks.Close(bounded))
		require.Empty(t, failed)
		require.NoError(t, release(ctx))
		close(gate)
		require.ErrorIs(t, <-failed, redlatch.ErrClosed)
		synctest.Wait()
		require.Empty(t, s.Direct.Keys(ctx, "*orders*alive*").Val())
	})
}

// counted is a log that counts its lines.
type counted struct {
	lines, dropped atomic.Int64
	holds          atomic.Int64 // number of holds in lines that stand for several holds
}

func (c *counted) Enabled(context.Context, slog.Level) bool { return true }
func (c *counted) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *counted) WithGroup(string) slog.Handler            { return c }
func (c *counted) Handle(_ context.Context, r slog.Record) error {
	c.lines.Add(1)
	if strings.Contains(r.Message, "dropped without") {
		c.dropped.Add(1)
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "holds" {
				c.holds.Add(a.Value.Int64())
			}
			return true
		})
	}
	return nil
}

// Thousands of handles are garbage. The log has a few lines about that, which count all of them.
// They do not count those that Close has released.
func TestVeryManyDroppedHoldsAreAFewLines(t *testing.T) {
	const permits = 2000
	log := &counted{}
	server, name := redistest.Shared(t), redistest.Name(t)
	c, err := redlatch.New(server.Client(t), redlatch.WithLogger(slog.New(log)))
	require.NoError(t, err)
	acquire := func() {
		for range permits {
			_, err := c.Semaphore(name, 2*permits).Acquire(t.Context(), 1)
			require.NoError(t, err)
		}
	}
	acquire()
	for end := time.Now().Add(stage.Guard); log.dropped.Load()+log.holds.Load() < permits; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "%d lines, for %d more", log.dropped.Load(), log.holds.Load())
		runtime.GC()
	}
	require.Less(t, log.lines.Load(), int64(permits/10))
	acquire()
	require.NoError(t, c.Close(t.Context()))
	before := log.lines.Load()
	runtime.GC()
	runtime.GC()
	require.Equal(t, before, log.lines.Load())
}

// An attempt that its caller has left ends before Close returns, if go-redis allows that: with
// ContextTimeoutEnabled.
func TestNoAttemptOutlivesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		client := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		s := stage.NewScene(t, server.Proxy, client, server.Client())
		s.Unlock(s.Lock(context.Background()))
		before := runtime.NumGoroutine()
		s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Swallow()})
		bounded, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Mutex.Lock(bounded)
		require.ErrorIs(t, err, redlatch.ErrIndeterminate)
		require.NoError(t, s.Locks.Close(context.Background()))
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
	})
}
