package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// handler is a log whose first line makes the program do something.
type handler struct {
	slog.Handler
	lines atomic.Int64
	first atomic.Bool
	do    func()
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) Handle(context.Context, slog.Record) error {
	h.lines.Add(1)
	if h.first.CompareAndSwap(false, true) {
		h.do()
	}
	return nil
}

// A program may close its client because it finds that a hold was dropped.
func TestALogHandlerMayClose(t *testing.T) {
	h := &handler{Handler: slog.DiscardHandler}
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Embedded(t).Addr()})
	defer rdb.Close()
	s := New(Config{Redis: rdb, PubSub: rdb, Log: slog.New(h)})
	closed := make(chan error, 1)
	h.do = func() {
		s.BeginClose()
		closed <- s.FinishClose(context.Background())
	}
	go s.Dropped("its lock is not renewed any more")
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the log handler waits for Close, and Close for the log")
	}
}

// The line about many dropped holds is written by Close, whose context ends it also
// when the log handler does not return.
func TestALogHandlerThatBlocksDoesNotKeepClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{Handler: slog.DiscardHandler}
		s := New(Config{Log: slog.New(h)})
		h.do = func() {}
		for range droppedOneByOne + 1 {
			s.Dropped("its lock is not renewed any more")
		}
		blocked := make(chan struct{})
		h.do = func() { <-blocked }
		h.first.Store(false)
		s.BeginClose()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.FinishClose(ctx), context.DeadlineExceeded)
		close(blocked)
	})
}

// What a call has to say is written beside it.
func TestALogHandlerThatBlocksKeepsNoCall(t *testing.T) {
	calls := map[string]func(*Session){
		"a refused publish": func(s *Session) { s.PublishDenied("channel") },
		"a panic":           func(s *Session) { _ = s.panicked("of a hook") },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocked, returned := make(chan struct{}), new(atomic.Bool)
				h := &handler{Handler: slog.DiscardHandler, do: func() { <-blocked }}
				s := New(Config{Log: slog.New(h)})
				go func() {
					call(s)
					call(s) // is not written again
					returned.Store(true)
				}()
				synctest.Wait()
				require.True(t, returned.Load())
				require.EqualValues(t, 1, h.lines.Load())
				close(blocked)
				s.BeginClose()
				require.NoError(t, s.FinishClose(context.Background()))
			})
		})
	}
}
