// Package session is one client's standing with Redis: its id, its way of
// calling scripts, its idea of the server's clock, and what it still has to do
// in the background before it may close.
package session

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Config is what a session is made of.
type Config struct {
	Redis          lua.Redis
	Pipeline       sender.Pipeline // nil where commands may go to several servers
	PubSub         wake.Redis
	Timeout        time.Duration // how long go-redis waits for an answer; 0: nobody knows
	HasIdleConn    func() bool   // whether go-redis has an open connection that nobody uses; nil: it has
	Log            *slog.Logger  // the one of the Session returns at once; see logLines
	Description    string        // what this client's holders say of themselves
	FenceRetention time.Duration // how long an unused fence is kept; 0: for ever
}

// Session is shared by all locks of one client. Its methods may be called
// concurrently.
type Session struct {
	Config

	ID       string
	Watchdog *watchdog.Watchdog
	Wakes    *wake.Hub

	clock      serverClock
	lastNumber atomic.Int64
	closing    context.Context // ends when the client begins to close
	close      context.CancelFunc
	closeBegun atomic.Bool
	closeCause error // the cause with which the contexts of this client's holds end
	tasks      tasks

	logLines logLines

	sender            *sender.Sender
	abandonedAttempts tasks // those left behind run until go-redis returns
	latency           latency
	needsEval         atomic.Bool // a server said too late that it lacks a script
	cleanups          cleanupQueue
	leaks             leakReporter
	renewers          [leaseKindCount]Renewer

	cluster atomic.Bool

	publishDenied atomic.Bool
	panicLogged   atomic.Bool
}

// New makes a session. It does no I/O and starts no goroutine.
func New(cfg Config) *Session {
	s := &Session{Config: cfg, ID: uuid.NewString()}
	next := slog.DiscardHandler
	if cfg.Log != nil {
		next = cfg.Log.Handler()
	}
	s.Log = slog.New(logHandler{next, &s.logLines})
	s.Wakes = wake.New(wake.Config{Redis: cfg.PubSub, Log: s.Log})
	s.closing, s.close = context.WithCancel(context.Background())
	s.closeCause = &closedError{lockerr.ErrClosed}
	s.clock.start = time.Now()
	s.sender = sender.New(sender.Config{Redis: cfg.Redis, Pipeline: cfg.Pipeline, Panicked: s.panicked})
	s.SetRenewer(Holds, s.renewHolds)
	s.Watchdog = watchdog.New(watchdog.Config{Renew: s.renew, Logger: s.Log})
	return s
}

// NewAcquisitionID returns an id that was never used before and never will be.
// Its form is Redisson's, whose Java clients take the number for a thread's.
func (s *Session) NewAcquisitionID() string {
	return s.ID + ":" + strconv.FormatInt(s.lastNumber.Add(1), 10)
}

// Now guesses the server's clock; see serverClock.
func (s *Session) Now() lua.Time { return s.clock.now() }

// Cluster reports whether keys live in slots, and nodes know only their own
// subscribers. That may be learned later, see renew.
func (s *Session) Cluster() bool { return s.cluster.Load() }

// FoundCluster notes that the server is a cluster, and regroups the leases that were
// watched before.
func (s *Session) FoundCluster() {
	s.cluster.Store(true)
	s.Watchdog.Regroup(func(name string, group int) int { return LeaseKind(group / slotCount).Group(key.Slot(name)) })
}

// Closing is closed when the client begins to close.
func (s *Session) Closing() <-chan struct{} { return s.closing.Done() }

// IsClosing reports whether the client closes or has closed.
func (s *Session) IsClosing() bool { return s.closeBegun.Load() }

// BeginClose makes waiters give up and refuses new work. It reports whether
// this call was the first.
func (s *Session) BeginClose() (first bool) {
	first = !s.closeBegun.Swap(true)
	s.close()
	return first
}

// CauseOfClose is the cause with which the contexts of holds end when this client closes. Each
// client has its own, which matches lockerr.ErrClosed: Close goes on when its context ends
// because of it, and not when another client closes.
func (s *Session) CauseOfClose() error { return s.closeCause }

// IsOwnClose reports whether a context that ended with that cause ended because this client
// closes. A caller that cancels a context with an error around the cause has a reason of its own.
func (s *Session) IsOwnClose(cause error) bool {
	own, ok := cause.(*closedError) //nolint:errorlint // one inside of a cause is of somebody else
	return ok && own == s.closeCause
}

// closedError is compared by its address.
type closedError struct{ error }

func (e *closedError) Unwrap() error { return e.error }

// BeginRequest counts a call that may be granted something, for closing to wait for:
// what it gets when the client has begun to close, it releases itself. It
// reports false, and counts nothing, when the client closes. Else the call ends
// with EndRequest.
func (s *Session) BeginRequest() (open bool) {
	s.tasks.add()
	if s.IsClosing() {
		s.tasks.done()
		return false
	}
	return true
}

// EndRequest ends what BeginRequest began.
func (s *Session) EndRequest() { s.tasks.done() }

// WarnPublishDenied notes that a release could not be published to those who wait. It is
// logged once in the client's life: locks are slower by it, not wrong.
func (s *Session) WarnPublishDenied(channel string) {
	if s.publishDenied.CompareAndSwap(false, true) {
		s.Write(slog.LevelWarn, "redlatch: redis does not let us publish releases; waiters poll", slog.String("channel", channel))
	}
}

// Write writes a line to the log. It does not wait for the handler.
func (s *Session) Write(level slog.Level, text string, attrs ...slog.Attr) {
	s.Log.LogAttrs(context.Background(), level, text, attrs...)
}

// FinishClose ends the watchdog and the wakes, and waits for calls that are
// still giving up and for background work, for these at most until ctx ends;
// then the rest has to stop. It waits a moment for attempts that were left
// behind, whom nobody can stop, and an instant for the log handler.
func (s *Session) FinishClose(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watchdog.Close()
		s.sender.Close()
		s.Wakes.Close() // may have to wait for go-redis, which makes a connection and hears no cancel
	}()
	err := s.tasks.finish(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	_ = s.abandonedAttempts.wait(bounded)
	s.leaks.flush(s.Log)
	s.logLines.flush()
	return err
}

// RunCallback runs code of the user in the middle of a request that BeginRequest counts. It may
// take its time, and may close the client: closing does not wait for it, and has
// abandon called, which gives up what the call has in Redis. Outside reports false
// then: the call is to end, and has nothing to give up any more.
func (s *Session) RunCallback(code, abandon func()) (goOn bool) {
	stop := context.AfterFunc(s.closing, func() {
		defer s.tasks.done()
		abandon()
	})
	defer func() {
		if goOn = stop(); !goOn {
			s.tasks.add() // again, for the EndRequest to come
		}
	}()
	code()
	return true
}

// Background runs work that outlives the call it belongs to. Its context ends
// when the client cannot wait for it any longer.
func (s *Session) Background(work func(ctx context.Context)) { s.tasks.start(work) }
