package reentrant

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
)

// A waiter gives up in the very moment in which it gets the local lock. Which of
// the two it sees first is chance, so it is played often: whatever it makes of
// it, the local lock goes on, and the next Lock gets the lock.
func TestWhatComesAsAWaiterLeavesGoesOn(t *testing.T) {
	const rounds = 30 // all of them by the same choice: once in a billion runs
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		client := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.Default()})
		f := newManager(mutex.NewRegistry(client))
		defer func() {
			client.BeginClose()
			_ = acquisition.CloseAll(context.Background(), f.registry.Held())
			_ = client.FinishClose(context.Background())
		}()
		m := f.newMutex("x", new(settings.Default))
		given, left := 0, 0
		for range rounds {
			ctx, cancel := context.WithCancel(context.Background())
			w := new(request)
			require.NoError(t, m.core.Begin(ctx, &w.Request))
			m.join(w)
			require.True(t, w.queue.tryLock())
			wait, localLock := w.queue.lockOrEnqueue(w)
			require.False(t, localLock)

			w.queue.passLocalLock()
			cancel()
			g, err := w.awaitHandoff(ctx, wait, w.NewSelfDeadlockWarning())
			if err == nil {
				given++
				require.Nil(t, g, "the local lock")
				w.queue.passLocalLock() // as contend does with a context that is over
			} else {
				left++
				require.ErrorIs(t, err, lockerr.ErrNotAcquired)
			}
			require.True(t, w.queue.tryLock(), "nobody has the turn")
			w.queue.passLocalLock()
			w.Close()
		}
		require.Equal(t, rounds, given+left)
	})
}

// A waiter gives up in the very moment in which it gets the lock itself. It takes the lock,
// whichever of the two it sees first: its caller waited for it, and to release it would cost a
// command.
func TestAHandoffThatComesAsAWaiterLeavesIsTaken(t *testing.T) {
	const rounds = 30 // all of them by the same choice: once in a billion runs
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Bubble(t).Client()
		client := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.Default()})
		f := newManager(mutex.NewRegistry(client))
		defer func() { client.BeginClose(); _ = client.FinishClose(context.Background()) }()
		m := f.newMutex("x", new(settings.Default))
		for range rounds {
			ctx, cancel := context.WithCancel(context.Background())
			w := new(request)
			require.NoError(t, m.core.Begin(ctx, &w.Request))
			m.join(w)
			require.True(t, w.queue.tryLock())
			wait, localLock := w.queue.lockOrEnqueue(w)
			require.False(t, localLock)

			hold := new(acquisition.Hold)
			require.True(t, w.queue.deliver(w.queue.next(), hold))
			cancel()
			g, err := w.awaitHandoff(ctx, wait, w.NewSelfDeadlockWarning())
			require.NoError(t, err)
			require.Same(t, hold, g)
			require.Equal(t, event.Handoff, w.Source)
			w.queue.passLocalLock()
			w.Close()
		}
	})
}
