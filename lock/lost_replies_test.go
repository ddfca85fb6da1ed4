package lock_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: the reply of a command is lost 1, 2 or 5 times in a row. As far as anybody
// can see, the command ran once, and the caller gets a true answer. (Many lock libraries fail this:
// a script that is sent again counts twice.)

// operations are the commands of a lock in its lifetime, each with n lost replies.
var operations = map[string]func(s *stage.Scene, n int){
	"acquire": func(s *stage.Scene, n int) {
		fault := s.Cut(stage.AnAcquire, n)
		h := s.Lock(context.Background())
		require.Equal(s.T, n, fault.Bites())
		s.Holds(h, 1)
		s.Unlock(h)
		s.Free()
	},
	"re-entry": func(s *stage.Scene, n int) {
		outer := s.Lock(context.Background())
		fault := s.Cut(stage.AReentry, n)
		inner := s.Lock(outer.Context())
		require.Equal(s.T, n, fault.Bites())
		s.Holds(inner, 2)
		require.Equal(s.T, outer.Fence(), inner.Fence())
		s.Unlock(inner)
		s.Holds(outer, 1)
		s.Unlock(outer)
		s.Free()
	},
	"inner release": func(s *stage.Scene, n int) {
		outer := s.Lock(context.Background())
		inner := s.Lock(outer.Context())
		fault := s.Cut(stage.AnInnerOne, n)
		s.Unlock(inner)
		require.Equal(s.T, n, fault.Bites())
		s.Holds(outer, 1)
		s.Unlock(outer)
		s.Free()
	},
	"last release": func(s *stage.Scene, n int) {
		h := s.Lock(context.Background())
		fault := s.Cut(stage.ALastOne, n)
		s.Unlock(h) // without reporting a loss
		require.Equal(s.T, n, fault.Bites())
		s.Free()
		require.ErrorIs(s.T, h.Unlock(context.Background()), redlatch.ErrNotHeld)
	},
	"transfer": func(s *stage.Scene, n int) {
		fault := s.Cut(stage.ATransfer, n)
		for fault.Bites() == 0 { // on a real server, the waiter may come too late to wait
			first := s.Lock(context.Background())
			second := s.Wait()
			s.Unlock(first)
			h := <-second
			s.Holds(h, 1)
			require.Greater(s.T, h.Fence(), first.Fence())
			s.Unlock(h)
		}
		require.Equal(s.T, n, fault.Bites())
		s.Free()
	},
}

// lostReplies runs an operation until inAll replies were lost.
func lostReplies(s *stage.Scene, op func(*stage.Scene, int), inARow, inAll int) {
	for lost := 0; lost < inAll; lost += inARow {
		op(s, inARow)
	}
}

// If a client sends a command again, trust counts from the second time. The copy has to extend the
// lease too, although it finds everything done.
func TestTrustInWhatACopyAnsweredEndsBeforeTheLease(t *testing.T) {
	for name, kind := range map[string]func([]string) bool{"acquire": stage.AnAcquire, "re-entry": stage.AReentry, "transfer": stage.ATransfer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 10 * time.Second
				s := stage.InBubble(t, redlatch.WithLease(lease), redlatch.WithoutRenewal())
				fault := s.Proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.DelayReply(time.Minute)})
				first := s.Lock(context.Background())
				second := s.Wait()
				inner := s.Lock(first.Context())
				s.TrustEnds(first, inner)
				s.Unlock(inner)
				s.Unlock(first)
				next := <-second
				s.TrustEnds(next)
				s.Unlock(next)
				require.Equal(t, 1, fault.Bites())
			})
		})
	}
}

func TestLostRepliesChangeNothing(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		for _, inARow := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s, %d in a row", name, inARow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					lostReplies(s, op, inARow, redistest.Rounds(50, 500))
					s.NothingLeft()
				})
			})
			t.Run(fmt.Sprintf("%s, %d in a row, real server", name, inARow), func(t *testing.T) {
				t.Parallel()
				s := stage.OnRealServer(t)
				lostReplies(s, op, inARow, 10*inARow)
				s.NothingLeft()
			})
		}
	}
}

// A renewal whose reply is lost is no loss, and is repeated in time.
func TestLostRepliesOfRenewals(t *testing.T) {
	for _, inARow := range []int{1, 2, 5} {
		t.Run(strconv.Itoa(inARow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				h := s.Lock(context.Background())
				for lost := 0; lost < 500; lost += inARow {
					fault := s.Cut(stage.ARenewal, inARow)
					trusted := h.TrustedUntil()
					for fault.Bites() < inARow || !h.TrustedUntil().After(trusted) {
						time.Sleep(100 * time.Millisecond)
						require.True(t, h.Trusted())
					}
					s.Holds(h, 1)
				}
				select {
				case <-h.Lost():
					t.Fatal("lost")
				default:
				}
				s.Unlock(h)
				s.NothingLeft()
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
	paused := func(op func(s *stage.Scene)) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			client := proxy.Client(func(o *redis.Options) { o.ReadTimeout = 50 * time.Millisecond })
			warm(t, client, 8) // a stopped server accepts no new connection, so the copies need old ones
			s := stage.NewScene(t, proxy, client, server.Client(t))
			s.Unlock(s.Lock(t.Context())) // the client learns the server's clock
			stopped, done := make(chan struct{}), make(chan struct{})
			s.Settle = func() {
				server.Pause()
				proxy.ResetCounts()
				close(stopped)
			}
			go func() {
				defer close(done)
				op(s)
				s.NothingLeft()
			}()
			<-stopped
			require.Eventually(t, func() bool { return proxy.Forwarded("EVALSHA") >= 3 }, 10*time.Second, time.Millisecond)
			server.Resume()
			<-done
		}
	}
	ctx := context.Background()
	t.Run("acquire", paused(func(s *stage.Scene) {
		s.Settle()
		h := s.Lock(ctx)
		s.Holds(h, 1)
		s.Unlock(h)
	}))
	t.Run("re-entry", paused(func(s *stage.Scene) {
		outer := s.Lock(ctx)
		s.Settle()
		inner := s.Lock(outer.Context())
		s.Holds(inner, 2)
		s.Unlock(inner)
		s.Unlock(outer)
	}))
	t.Run("inner release", paused(func(s *stage.Scene) {
		outer := s.Lock(ctx)
		inner := s.Lock(outer.Context())
		s.Settle()
		s.Unlock(inner)
		s.Holds(outer, 1)
		s.Unlock(outer)
	}))
	t.Run("last release", paused(func(s *stage.Scene) {
		h := s.Lock(ctx)
		s.Settle()
		s.Unlock(h)
		s.Free()
	}))
}
