package lock_test

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// Without an open connection go-redis has to dial, for as long as the dialer likes. A try leaves
// such an attempt, and returns in time.
func TestATryThatHasToDialReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 4500 * time.Millisecond
		s := stage.InBubble(t)
		rdb := s.Proxy.Client(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(slow)
				client, server := net.Pipe() // on which nobody answers
				go func() { _, _ = io.Copy(io.Discard, server) }()
				return client, nil
			}
			o.ReadTimeout = slow
		})
		locks, err := redlatch.New(rdb)
		require.NoError(t, err)
		began := time.Now()
		_, err = locks.Mutex("orders").TryLock(context.Background())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = locks.Close(ctx) // nobody answers
		require.NoError(t, rdb.Close())
		time.Sleep(time.Minute) // until go-redis has given up
	})
}

// The connection of a call dies silently. The call sends by itself, and leaves that attempt early
// enough for another: the Unlock before trust ends, and the Lock soon after its context.
func TestACallThatSendsByItselfLeavesADeadConnection(t *testing.T) {
	obeysDeadlines := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	for name, ctx := range map[string]func(t *testing.T) context.Context{
		"nothing ends it": func(*testing.T) context.Context { return context.Background() },
		"it can end":      func(t *testing.T) context.Context { return t.Context() },
	} {
		t.Run("unlock, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubbleOf(t, obeysDeadlines, redlatch.WithLease(8*time.Second), redlatch.WithoutRenewal())
				s.Unlock(s.Lock(ctx(t)))
				h := s.Lock(ctx(t))
				time.Sleep(time.Until(h.TrustedUntil()) - 2*sender.DirectFor)
				lost := s.Proxy.Inject(redistest.Rule{Match: stage.ALastOne, Times: 1, Action: redistest.Swallow()})
				require.NoError(t, h.Unlock(ctx(t)))
				require.NotZero(t, lost.Bites())
			})
		})
	}
	t.Run("lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubbleOf(t, obeysDeadlines)
			s.Unlock(s.Lock(t.Context()))
			s.Proxy.BlackHole(redistest.CommandTraffic)
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				began := time.Now()
				_, err := s.Mutex.Lock(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(began), time.Millisecond+sender.DirectFor)
			}
			s.Proxy.Heal()
			s.Unlock(s.Lock(t.Context()))
		})
	})
}

// A command that its caller gave up arrives late. It must do nothing, because a later attempt of
// the same call may have got the lock and released it.
func TestACommandThatItsCallerGaveUpDoesNothingLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		s.Unlock(s.Lock(t.Context()))
		synctest.Wait() // nothing is in flight, so the next command is sent by its caller
		late := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.HoldBack()})
		began := time.Now()
		s.Unlock(s.Lock(t.Context()))
		require.Equal(t, 1, late.Bites())
		require.Less(t, time.Since(began), 2*sender.DirectFor)
		late.Release()
		synctest.Wait()
		s.Free()
		s.NothingLeft()
	})
}

// The context of an Unlock ends while the Unlock waits for a renewal in flight. The Unlock returns
// then. Its error has a kind, and the background releases the lock.
func TestAnUnlockThatWaitsForARenewalObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(6*time.Second))
		h := s.Lock(t.Context())
		slow := s.Proxy.Inject(redistest.Rule{Match: stage.ARenewal, Times: 1, Action: redistest.DelayReply(400 * time.Millisecond)})
		slow.Await(1)
		const limit = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		err := h.Unlock(ctx)
		require.Equal(t, limit, time.Since(began))
		stage.RequireOnly(t, redlatch.ErrUnavailable, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		s.Free()
		s.NothingLeft()
	})
}
