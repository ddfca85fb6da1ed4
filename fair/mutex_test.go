package fair_test

import (
	"context"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

func open(t *testing.T, v *redistest.Virtual) *redlatch.Client {
	t.Helper()
	c, err := redlatch.New(v.Client(), redlatch.WithDescription("worker"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func TestAMutexThatNobodyMadeHasNoQueue(t *testing.T) {
	for _, m := range []*fair.Mutex{nil, new(fair.Mutex)} {
		waiters, length, err := m.Queue(t.Context(), 0, 10)
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.Empty(t, waiters)
		require.Zero(t, length)
		removed, err := m.RemoveWaiter(t.Context(), "somebody")
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.False(t, removed)
	}
}

// Clients of other versions read what a waiter asks for from its entry in the queue.
func TestAWaiterStandsInTheQueueWithWhatItAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		m := open(t, v).FairMutex("orders", redlatch.WithLease(7*time.Second), redlatch.WithHeartbeat(3*time.Second))
		h, err := m.Lock(t.Context())
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- m.Do(context.Background(), func(context.Context) error { return nil }) }()
		time.Sleep(time.Second)
		queued, err := v.Client().ZRange(t.Context(), key.ForMutex("orders").Queue, 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, queued, 1)
		require.Regexp(t, `^[0-9a-f-]{36}:\d+ 1 3000 7000 worker$`, queued[0])
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, <-done)
	})
}

var anID = regexp.MustCompile(`[0-9a-f-]{36}:\d+`)

// A place in the queue stands for a heartbeat, and then the waiter needs another id. A try gets the
// lock for a lease, or nothing.
func TestAnIDIsGivenUpWhenItsPlaceMayHaveEnded(t *testing.T) {
	for name, c := range map[string]struct {
		ask  func(ctx context.Context, m *fair.Mutex) error
		more bool // than one id in four seconds
	}{
		"Lock":    {func(ctx context.Context, m *fair.Mutex) error { _, err := m.Lock(ctx); return err }, true},
		"TryLock": {func(ctx context.Context, m *fair.Mutex) error { _, err := m.TryLock(ctx); return err }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				m := open(t, v).FairMutex("orders", redlatch.WithHeartbeat(time.Second))
				var mu sync.Mutex
				ids := map[string]bool{}
				v.Inject(redistest.Rule{Action: redistest.Swallow(), Match: func(cmd []string) bool {
					if lua.ScriptName(cmd) != "fair/join" {
						return false
					}
					mu.Lock()
					defer mu.Unlock()
					for _, arg := range cmd {
						if id := anID.FindString(arg); id != "" {
							ids[id] = true
						}
					}
					return true
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				require.Error(t, c.ask(ctx, m))
				require.Error(t, ctx.Err(), "it went on until its context ended")
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, c.more, len(ids) > 1, ids)
			})
		})
	}
}
