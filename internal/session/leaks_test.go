package session

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/watchdog"
)

// handler is a log handler that calls do with its first line.
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

// lines contains every kind of log line, and how a program causes it.
var lines = map[string]func(s *Session, server *redistest.Virtual){
	"a dropped hold": func(s *Session, _ *redistest.Virtual) {
		s.ReportLeak("a hold was dropped without Unlock; its lock is not renewed any more")
	},
	"many dropped holds": func(s *Session, _ *redistest.Virtual) {
		for range maxLeakLogs + 1 {
			s.ReportLeak("a hold was dropped without Unlock; its lock is not renewed any more")
		}
	},
	"a refused publish": func(s *Session, _ *redistest.Virtual) { s.WarnPublishDenied("channel") },
	"a panic":           func(s *Session, _ *redistest.Virtual) { _ = s.panicked("of a hook") },
	"a wait for itself": func(s *Session, _ *redistest.Virtual) { s.Write(slog.LevelWarn, "redlatch: a long wait") },
	"a refused subscription": func(s *Session, server *redistest.Virtual) {
		server.Proxy.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") },
			Action: redistest.Refuse("NOPERM this user has no permissions"),
		})
		s.Hub.Subscribe("channel")
	},
	"no connection for subscriptions": func(s *Session, server *redistest.Virtual) {
		server.Proxy.BlackHole(redistest.AllTraffic)
		s.Hub.Subscribe("channel")
	},
	"renewals that fail": func(s *Session, server *redistest.Virtual) {
		server.Proxy.BlackHole(redistest.AllTraffic)
		s.Watchdog.Watch(watchdog.Spec{
			Key: "x", ID: s.NewAcquisitionID(), Group: s.Group(Holds, "x"), Lease: 10 * time.Second, Margin: time.Second,
			Interval: time.Second, Renew: true, Sent: time.Now(), OnLost: watchdog.LossFunc(func(watchdog.Reason) {}),
		})
	},
}

// playLines runs test for each kind of line, with a server and a log of its own.
func playLines(t *testing.T, test func(t *testing.T, s *Session, h *handler, say func())) {
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Minute) }) // go-redis ends in its own time
				server := redistest.Bubble(t)
				rdb := server.Client()
				h := &handler{Handler: slog.DiscardHandler, do: func() {}}
				s := New(Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.New(h)})
				test(t, s, h, func() { line(s, server) })
				server.Proxy.Heal()
			})
		})
	}
}

// A log handler may close the client because of a line, and wait for that.
func TestALogHandlerMayClose(t *testing.T) {
	playLines(t, func(t *testing.T, s *Session, h *handler, say func()) {
		closed := make(chan time.Duration, 1)
		h.do = func() {
			start := time.Now()
			s.BeginClose()
			require.NoError(t, s.FinishClose(context.Background()))
			closed <- time.Since(start)
		}
		say()
		require.Less(t, <-closed, 10*time.Second, "the log handler waits for Close, and Close for the log")
	})
}

// A log handler may never return, for example if it writes to a pipe that nobody reads.
func TestALogHandlerThatBlocksDoesNotKeepClose(t *testing.T) {
	playLines(t, func(t *testing.T, s *Session, h *handler, say func()) {
		blocked, begun := make(chan struct{}), make(chan struct{})
		h.do = func() { close(begun); <-blocked }
		say()
		<-begun
		start := time.Now()
		s.BeginClose()
		require.NoError(t, s.FinishClose(context.Background()))
		require.Less(t, time.Since(start), 10*time.Second)
		close(blocked)
	})
}

// The hub writes lines under its mutex, so the session must give it a log that does not block.
func TestALogHandlerThatBlocksKeepsNoWake(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Embedded(t).Addr())
	proxy.Inject(redistest.Rule{
		Match:  func(cmd []string) bool { return slices.Contains(cmd, "refused") },
		Action: redistest.Refuse("NOPERM this user has no permissions"),
	})
	rdb := proxy.Client()
	blocked, begun, woken := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	h := &handler{Handler: slog.DiscardHandler, do: func() { close(begun); <-blocked }}
	s := New(Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.New(h)})
	t.Cleanup(func() {
		close(blocked)
		s.BeginClose()
		require.NoError(t, s.FinishClose(context.Background()))
	})
	s.Hub.Subscribe("refused")
	<-begun
	go func() { // it would wait for the mutex
		_ = s.Hub.Listen("door", func(text string) { woken <- text }, func() {}).Ready(context.Background())
		rdb.Publish(context.Background(), "door", "free")
	}()
	select {
	case text := <-woken:
		require.Equal(t, "free", text)
	case <-time.After(time.Minute): // only a failure waits for it
		t.Fatal("no wake while the log handler blocks")
	}
}

// When Close returns, the log has the lines of Close, and all lines before it.
func TestTheLogIsWrittenWhenCloseReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{Handler: slog.DiscardHandler, do: func() { time.Sleep(10 * time.Millisecond) }}
		s := New(Config{Log: slog.New(h)})
		for range maxLeakLogs + 1 {
			s.ReportLeak("a hold was dropped without Unlock; its lock is not renewed any more")
		}
		s.BeginClose()
		require.NoError(t, s.FinishClose(context.Background()))
		require.EqualValues(t, maxLeakLogs+1, h.lines.Load(), "one of them counts the others")
	})
}

// A log handler may end its goroutine, as FailNow of a test does. The next lines are written all
// the same, and Close waits for none.
func TestALogHandlerThatEndsItsGoroutineLosesOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{Handler: slog.DiscardHandler, do: runtime.Goexit}
		s := New(Config{Log: slog.New(h)})
		for range 3 {
			s.Write(slog.LevelWarn, "a line")
			synctest.Wait()
		}
		require.EqualValues(t, 3, h.lines.Load())
		began := time.Now()
		s.BeginClose()
		require.NoError(t, s.FinishClose(context.Background()))
		require.Zero(t, time.Since(began))
	})
}

// A log handler that does not return keeps a bounded number of lines in memory.
func TestABlockedLogKeepsABoundedNumberOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		h := &handler{Handler: slog.DiscardHandler, do: func() { <-blocked }}
		s := New(Config{Log: slog.New(h)})
		s.Write(slog.LevelWarn, "the first")
		synctest.Wait()
		for range 3 * maxQueuedCalls {
			s.Write(slog.LevelWarn, "another")
		}
		close(blocked)
		synctest.Wait()
		require.EqualValues(t, 1+maxQueuedCalls, h.lines.Load())
	})
}

// A call does not wait until its log line is written.
func TestALogHandlerThatBlocksKeepsNoCall(t *testing.T) {
	calls := map[string]func(*Session){
		"a refused publish": func(s *Session) { s.WarnPublishDenied("channel") },
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
