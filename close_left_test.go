package redlatch_test

import (
	"context"
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
)

// The goal of this file: Close reports no error if and only if Redis has no lock of the client any
// more. Unlock has failed before, in different ways.

func callFor(d time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return call(ctx)
}

// The answer to a local handoff is lost, so nobody knows which of the two acquisitions has the
// lock.
func TestCloseReleasesALockThatWasHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		go func() { _, _ = s.Mutex.Lock(context.Background()) }()
		synctest.Wait()
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/transfer"), Times: 1, Action: redistest.LoseReply()})
		time.AfterFunc(100*time.Millisecond, s.Proxy.Down)
		time.AfterFunc(4*time.Second, s.Proxy.Up)
		require.ErrorIs(t, callFor(500*time.Millisecond, h.Unlock), redlatch.ErrIndeterminate)
		require.NoError(t, s.Locks.Close(t.Context()))
		require.Empty(t, s.Stored())
		runtime.KeepAlive(h)
	})
}

// After a failed Export, an Unlock frees the lock. If that fails too, the background goes on.
func TestCloseReleasesALockThatCouldNotBeExported(t *testing.T) {
	play := func(t *testing.T, end func(t *testing.T, s *stage.Scene)) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			h := s.Lock(t.Context())
			s.Proxy.Down()
			_ = callFor(300*time.Millisecond, func(ctx context.Context) error { _, err := h.Export(ctx, time.Minute); return err })
			require.Error(t, callFor(300*time.Millisecond, h.Unlock))
			end(t, s)
			runtime.KeepAlive(h)
		})
	}
	t.Run("redis comes back", func(t *testing.T) {
		play(t, func(t *testing.T, s *stage.Scene) {
			time.AfterFunc(4*time.Second, s.Proxy.Up)
			require.NoError(t, s.Locks.Close(t.Context()))
			require.Empty(t, s.Stored())
		})
	})
	t.Run("redis stays away", func(t *testing.T) {
		play(t, func(t *testing.T, s *stage.Scene) {
			require.Error(t, callFor(4*time.Second, s.Locks.Close))
			s.Proxy.Up()
		})
	})
	t.Run("without Close", func(t *testing.T) {
		play(t, func(t *testing.T, s *stage.Scene) {
			s.Proxy.Up()
			time.Sleep(5 * time.Second)
			require.Empty(t, s.Stored())
		})
	})
}

// A second Unlock has released the lock, so Close has nothing to wait for.
func TestCloseForgetsAReleaseThatSucceededLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(t.Context())
		s.Proxy.BlackHole(redistest.AllTraffic)
		require.Error(t, callFor(500*time.Millisecond, h.Unlock))
		time.Sleep(100 * time.Millisecond)
		s.Proxy.Heal()
		require.NoError(t, h.Unlock(t.Context()))
		require.Empty(t, s.Stored())
		s.Proxy.Down()
		require.NoError(t, callFor(3*time.Second, s.Locks.Close))
		s.Proxy.Up()
	})
}

// An outage that outlasts the lease ends the release. Close much later has nothing to say about it.
func TestCloseForgetsALockWhoseLeaseEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		require.NoError(t, s.Mutex.Do(t.Context(), func(context.Context) error { s.Proxy.Down(); return nil }))
		time.Sleep(2 * stage.LeaseByDefault)
		s.Proxy.Up()
		require.NoError(t, s.Locks.Close(t.Context()))
	})
}

// A hook ends the goroutine of an Unlock that hands the lock on, and then Redis is away for a
// while. Nobody knows who has the lock, so Close releases both.
func TestCloseReleasesAHandoffWithoutGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }) // the caller sends by itself
		stage.WarmUp(t, s.Locks)
		h := s.Lock(t.Context())
		go func() { _, _ = s.Mutex.Lock(context.Background()) }()
		synctest.Wait()
		s.Client.AddHook(&exitsAfter{script: "mutex/transfer", then: s.Proxy.Down})
		time.AfterFunc(4*time.Second, s.Proxy.Up)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = h.Unlock(context.Background()) }()
		<-ended
		require.NoError(t, s.Locks.Close(t.Context()))
		require.Empty(t, s.Stored())
	})
}

// exitsAfter ends the goroutine of the first call of a script, after Redis has run it.
type exitsAfter struct {
	script string
	then   func()
	used   atomic.Bool
}

func (h *exitsAfter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *exitsAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}
func (h *exitsAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if stage.ScriptOf(cmd) == h.script && h.used.CompareAndSwap(false, true) {
			h.then()
			runtime.Goexit()
		}
		return err
	}
}
