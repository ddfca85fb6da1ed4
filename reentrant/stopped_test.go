package reentrant

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
)

// The process was stopped between the hand-over and the waking of the waiter, for
// longer than the lease. The waiter never had the lock, and lost none.
func TestFreshWaiterIsNotToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		client := session.New(session.Config{Redis: rdb, PubSub: rdb, Log: slog.Default()})
		f := NewFamily(client)
		defer func() {
			client.BeginClose()
			_ = f.Close(context.Background())
			_ = client.FinishClose(context.Background())
		}()
		m := f.Mutex("x", settings.Default)
		h, err := m.Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ctx := owner.With(context.Background(), owner.New())
		res := make(chan error, 1)
		go func() { _, err := m.Lock(ctx); res <- err }()
		synctest.Wait()
		l := f.enter("x")
		w := l.next()
		// granted 40 s ago: the process was stopped in between
		g := w.want.begin(w.want.newID(), 1, time.Now().Add(-40*time.Second), 0, false)
		synctest.Wait() // the watchdog has told
		l.deliver(w, given{hold: g})
		go func() { time.Sleep(time.Second); _ = h.Unlock(context.Background()) }()
		err = <-res
		if err != nil {
			t.Fatal("a waiter that never held was told:", err)
		}
	})
}
