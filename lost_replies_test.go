package redlatch_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
)

// The goal of this file: the reply of a command is lost 1, 2 or 5 times in a row. As far as anybody
// can see, the command ran once, and the caller gets a true answer. (Many lock libraries fail this:
// a script that is sent again counts twice.)

// scene is one client with one lock behind a proxy, and a client that does not use the proxy.
type scene struct {
	t      *testing.T
	proxy  *redistest.Proxy
	client *redis.Client // of locks
	direct *redis.Client
	locks  *redlatch.Client
	mu     *reentrant.Mutex
	name   string
	settle func() // returns when nothing moves any more, in virtual time
}

func newScene(t *testing.T, proxy *redistest.Proxy, client, direct *redis.Client, options ...redlatch.Option) *scene {
	t.Helper()
	locks, err := redlatch.New(client, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	s := &scene{t: t, proxy: proxy, client: client, direct: direct, locks: locks, name: redistest.Name(t), settle: func() {}}
	s.mu = locks.Mutex(s.name)
	return s
}

// inBubble makes a scene in a bubble.
func inBubble(t *testing.T, options ...redlatch.Option) *scene {
	t.Helper()
	return inBubbleOf(t, func(*redis.Options) {}, options...)
}

// inBubbleOf is inBubble with a go-redis client of other options.
func inBubbleOf(t *testing.T, mod func(*redis.Options), options ...redlatch.Option) *scene {
	t.Helper()
	// Last of all, because go-redis dials in the background, with pauses.
	t.Cleanup(func() { time.Sleep(15 * time.Second) })
	server := redistest.Bubble(t)
	direct := server.Client(func(o *redis.Options) {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return server.Server.Dial() }
	})
	s := newScene(t, server.Proxy, server.Client(mod), direct, options...)
	s.settle = synctest.Wait
	return s
}

// onRealServer makes a scene on the shared server.
func onRealServer(t *testing.T, options ...redlatch.Option) *scene {
	t.Helper()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server.Addr())
	return newScene(t, proxy, proxy.Client(), server.Client(t), options...)
}

// stored is the data under the name of the lock in Redis, without the description.
func (s *scene) stored() map[string]string {
	s.t.Helper()
	fields, err := s.direct.HGetAll(context.Background(), s.name).Result()
	require.NoError(s.t, err)
	delete(fields, "redlatch:about")
	return fields
}

func (s *scene) lock(ctx context.Context) *lock.Hold {
	s.t.Helper()
	h, err := s.mu.Lock(ctx)
	require.NoError(s.t, err)
	return h
}

// holds asserts that the acquisition of h has n holds of the lock.
func (s *scene) holds(h *lock.Hold, n int) {
	s.t.Helper()
	require.Equal(s.t, map[string]string{h.ID(): strconv.Itoa(n)}, s.stored())
	fence, err := s.direct.Get(context.Background(), "redisson_lock_token:{"+s.name+"}").Int64()
	require.NoError(s.t, err)
	require.Equal(s.t, fence, h.Fence())
}

func (s *scene) free() {
	s.t.Helper()
	require.Empty(s.t, s.stored())
}

func (s *scene) unlock(h *lock.Hold) {
	s.t.Helper()
	require.NoError(s.t, h.Unlock(context.Background()))
}

// cut loses the replies of the next n commands of a kind.
func (s *scene) cut(kind func([]string) bool, n int) *redistest.Fault {
	return s.proxy.Inject(redistest.Rule{Match: kind, Times: n, Action: redistest.CutReply()})
}

// operations are the commands of a lock in its lifetime, each with n lost replies.
var operations = map[string]func(s *scene, n int){
	"acquire": func(s *scene, n int) {
		fault := s.cut(anAcquire, n)
		h := s.lock(context.Background())
		require.Equal(s.t, n, fault.Bites())
		s.holds(h, 1)
		s.unlock(h)
		s.free()
	},
	"re-entry": func(s *scene, n int) {
		outer := s.lock(context.Background())
		fault := s.cut(aReentry, n)
		inner := s.lock(outer.Context())
		require.Equal(s.t, n, fault.Bites())
		s.holds(inner, 2)
		require.Equal(s.t, outer.Fence(), inner.Fence())
		s.unlock(inner)
		s.holds(outer, 1)
		s.unlock(outer)
		s.free()
	},
	"inner release": func(s *scene, n int) {
		outer := s.lock(context.Background())
		inner := s.lock(outer.Context())
		fault := s.cut(anInnerOne, n)
		s.unlock(inner)
		require.Equal(s.t, n, fault.Bites())
		s.holds(outer, 1)
		s.unlock(outer)
		s.free()
	},
	"last release": func(s *scene, n int) {
		h := s.lock(context.Background())
		fault := s.cut(aLastOne, n)
		s.unlock(h) // without reporting a loss
		require.Equal(s.t, n, fault.Bites())
		s.free()
		require.ErrorIs(s.t, h.Unlock(context.Background()), redlatch.ErrNotHeld)
	},
	"transfer": func(s *scene, n int) {
		fault := s.cut(aTransfer, n)
		for fault.Bites() == 0 { // on a real server, the waiter may come too late to wait
			first := s.lock(context.Background())
			second := s.wait()
			s.unlock(first)
			h := <-second
			s.holds(h, 1)
			require.Greater(s.t, h.Fence(), first.Fence())
			s.unlock(h)
		}
		require.Equal(s.t, n, fault.Bites())
		s.free()
	},
}

// wait makes another owner wait for the lock.
func (s *scene) wait() <-chan *lock.Hold {
	got := make(chan *lock.Hold, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		h, err := s.mu.Lock(context.Background())
		if err != nil {
			panic(err)
		}
		got <- h
	}()
	<-ready
	s.settle()
	return got
}

// lostReplies runs an operation until inAll replies were lost.
func lostReplies(s *scene, op func(*scene, int), inARow, inAll int) {
	for lost := 0; lost < inAll; lost += inARow {
		op(s, inARow)
	}
}

// If a client sends a command again, trust counts from the second time. The copy has to extend the
// lease too, although it finds everything done.
func TestTrustInWhatACopyAnsweredEndsBeforeTheLease(t *testing.T) {
	for name, kind := range map[string]func([]string) bool{"acquire": anAcquire, "re-entry": aReentry, "transfer": aTransfer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 10 * time.Second
				s := inBubble(t, redlatch.WithLease(lease), redlatch.WithoutRenewal())
				fault := s.proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.DelayReply(time.Minute)})
				first := s.lock(context.Background())
				second := s.wait()
				inner := s.lock(first.Context())
				s.trustEnds(first, inner)
				s.unlock(inner)
				s.unlock(first)
				next := <-second
				s.trustEnds(next)
				s.unlock(next)
				require.Equal(t, 1, fault.Bites())
			})
		})
	}
}

// trustEnds asserts that trust ends before Redis ends the lease.
func (s *scene) trustEnds(holds ...*lock.Hold) {
	s.t.Helper()
	left, err := s.direct.PTTL(context.Background(), s.name).Result()
	require.NoError(s.t, err)
	for _, h := range holds {
		require.True(s.t, h.Trusted())
		require.LessOrEqual(s.t, time.Until(h.TrustedUntil()), left)
	}
}

func TestLostRepliesChangeNothing(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		for _, inARow := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s, %d in a row", name, inARow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := inBubble(t)
					lostReplies(s, op, inARow, redistest.Rounds(50, 500))
					s.nothingLeft()
				})
			})
			t.Run(fmt.Sprintf("%s, %d in a row, real server", name, inARow), func(t *testing.T) {
				t.Parallel()
				s := onRealServer(t)
				lostReplies(s, op, inARow, 10*inARow)
				s.nothingLeft()
			})
		}
	}
}

// nothingLeft closes the client, which waits for its background work.
func (s *scene) nothingLeft() {
	s.t.Helper()
	require.NoError(s.t, s.locks.Close(context.Background()))
	s.free()
}

// A renewal whose reply is lost is no loss, and is repeated in time.
func TestLostRepliesOfRenewals(t *testing.T) {
	for _, inARow := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(inARow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				h := s.lock(context.Background())
				for lost := 0; lost < 500; lost += inARow {
					fault := s.cut(aRenewal, inARow)
					trusted := h.TrustedUntil()
					for fault.Bites() < inARow || !h.TrustedUntil().After(trusted) {
						time.Sleep(100 * time.Millisecond)
						require.True(t, h.Trusted())
					}
					s.holds(h, 1)
				}
				select {
				case <-h.Lost():
					t.Fatal("lost")
				default:
				}
				s.unlock(h)
				s.nothingLeft()
			})
		})
	}
}

// warm opens n connections and puts them into the client's pool. On a busy machine, an answer can
// take longer than the read timeout of the client. Then warm asks again, by another connection.
func warm(t *testing.T, client *redis.Client, n int) {
	t.Helper()
	for range n {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		for conn.Ping(t.Context()).Err() != nil {
			require.NoError(t, t.Context().Err())
			_ = conn.Close()
			conn = client.Conn()
		}
	}
}

// The server is stopped while a command is in progress, for longer than the client's read timeout.
// go-redis only gets time-outs. When the server goes on, it executes every copy.
func TestPausedServerExecutesEveryCopy(t *testing.T) {
	t.Parallel()
	paused := func(op func(s *scene)) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			client := proxy.Client(func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
			warm(t, client, 8) // a stopped server accepts no new connection, so the copies need old ones
			s := newScene(t, proxy, client, server.Client(t))
			s.unlock(s.lock(t.Context())) // the client learns the server's clock
			stopped, done := make(chan struct{}), make(chan struct{})
			s.settle = func() {
				server.Pause()
				proxy.ResetCounts()
				close(stopped)
			}
			go func() {
				defer close(done)
				op(s)
				s.nothingLeft()
			}()
			<-stopped
			require.Eventually(t, func() bool { return proxy.Forwarded("EVALSHA") >= 3 }, 10*time.Second, time.Millisecond)
			server.Resume()
			<-done
		}
	}
	ctx := context.Background()
	t.Run("acquire", paused(func(s *scene) {
		s.settle()
		h := s.lock(ctx)
		s.holds(h, 1)
		s.unlock(h)
	}))
	t.Run("re-entry", paused(func(s *scene) {
		outer := s.lock(ctx)
		s.settle()
		inner := s.lock(outer.Context())
		s.holds(inner, 2)
		s.unlock(inner)
		s.unlock(outer)
	}))
	t.Run("inner release", paused(func(s *scene) {
		outer := s.lock(ctx)
		inner := s.lock(outer.Context())
		s.settle()
		s.unlock(inner)
		s.holds(outer, 1)
		s.unlock(outer)
	}))
	t.Run("last release", paused(func(s *scene) {
		h := s.lock(ctx)
		s.settle()
		s.unlock(h)
		s.free()
	}))
}
