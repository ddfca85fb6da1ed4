package redlatch_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lockerr"
)

// Everything that takes a context refuses a missing one, and nothing of such a call is left. The
// program may have recovered from worse, and goes on.
func TestAMissingContextIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		h := s.Lock(ctx)
		p, err := s.Locks.Semaphore("gate", 1).Acquire(ctx, 1)
		require.NoError(t, err)
		all := stage.Calls(s.Locks)
		all["Hold.Unlock"], all["Permit.Release"], all["Client.Close"] = h.Unlock, p.Release, s.Locks.Close
		for name, op := range all {
			var bad *lockerr.ConfigError
			require.NotPanics(t, func() { err = op(nil) }, name)
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, "context", bad.Setting)
		}
		require.True(t, h.Trusted(), "it is held")
		require.NoError(t, p.Release(ctx))
		s.Unlock(h)
		require.NoError(t, s.Locks.Close(ctx))
		require.Zero(t, stage.NamesInUse(s.Locks))
	})
}

// WithOwner returns no error, so it panics, and says what is wrong.
func TestWithOwnerSaysThatItsContextIsMissing(t *testing.T) {
	var missing context.Context
	require.PanicsWithValue(t, "redlatch: WithOwner: the context must not be nil", func() { redlatch.WithOwner(missing) })
}

// If a call panics, or ends its goroutine, the client does not count it any more. Close does not
// wait for it, and the next call does not queue behind it.
func TestACallThatPanicsIsNotCounted(t *testing.T) {
	acts := map[string]func(){"panics": func() { panic("a context of the user") }, "ends its goroutine": runtime.Goexit}
	for way, act := range acts {
		for _, method := range []string{"Err", "Value", "Deadline"} {
			t.Run(method+" "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					ctx := context.Background()
					for _, op := range stage.Calls(s.Locks) {
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							_ = op(stage.HostileContext{Context: ctx, Method: method, Act: act})
						}()
						<-ended
					}
					bounded, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					h, err := s.Locks.Mutex("orders").Lock(bounded)
					require.NoError(t, err)
					require.NoError(t, h.Unlock(ctx))
					started := time.Now()
					require.NoError(t, s.Locks.Close(bounded))
					require.Zero(t, time.Since(started))
					require.Zero(t, stage.NamesInUse(s.Locks))
				})
			})
		}
	}
}

// A call that panics while it asks for its whole process passes on the right to ask. The next one
// asks.
func TestACallThatPanicsPassesOnTheRightToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		require.NoError(t, s.Direct.HSet(ctx, s.Name, "somebody:1", 1).Err())
		var armed atomic.Bool
		asks := stage.HostileContext{Context: ctx, Method: "Deadline", Act: func() {
			if armed.Load() {
				panic("a context of the user")
			}
		}}
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			_, _ = s.Mutex.Lock(asks)
		}()
		time.Sleep(100 * time.Millisecond)
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			h, err := s.Mutex.Lock(bounded)
			if err == nil {
				err = h.Unlock(ctx)
			}
			failed <- err
		}()
		time.Sleep(100 * time.Millisecond)
		armed.Store(true)
		require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
		require.NoError(t, <-failed)
		require.NotNil(t, <-panicked)
	})
}
