// Package session is one client's standing with Redis: its id, its way of
// calling scripts, its idea of the server's clock, and what it still has to do
// in the background before it may close.
package session

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/wake"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Config is what a session is made of.
type Config struct {
	Redis     lua.Redis
	PubSub    wake.Redis
	Log       *slog.Logger
	About     string        // what this client's holders say of themselves
	KeepFence time.Duration // how long an unused fence is kept; 0: for ever
	Cluster   bool          // keys live in slots, and nodes know only their own subscribers
}

// Session is shared by all locks of one client. Its methods may be called
// concurrently.
type Session struct {
	Config

	ID       string
	Watchdog *watchdog.Watchdog
	Wakes    *wake.Hub

	clock   serverClock
	numbers atomic.Int64
	closing context.Context // ends when the client begins to close
	close   context.CancelFunc
	begun   atomic.Bool
	tasks   tasks

	unanswered backlog
	kept       [kinds]func(ctx context.Context, batch []watchdog.Request) ([]watchdog.Answer, error)

	publishDenied sync.Once
}

// New makes a session. It does no I/O and starts no goroutine.
func New(cfg Config) *Session {
	s := &Session{
		Config: cfg,
		ID:     uuid.NewString(),
		Wakes:  wake.New(wake.Config{Redis: cfg.PubSub, Log: cfg.Log}),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.clock.start = time.Now()
	s.Keep(Holds, s.renewHolds)
	s.Watchdog = watchdog.New(watchdog.Config{Renew: s.renew, Log: cfg.Log})
	return s
}

// NewAcquisition returns an id that was never used before and never will be.
// Its form is Redisson's, whose Java clients take the number for a thread's.
func (s *Session) NewAcquisition() string {
	return s.ID + ":" + strconv.FormatInt(s.numbers.Add(1), 10)
}

// Now guesses the server's clock; see serverClock.
func (s *Session) Now() lua.Time { return s.clock.now() }

// Closing is closed when the client begins to close.
func (s *Session) Closing() <-chan struct{} { return s.closing.Done() }

// IsClosing reports whether the client closes or has closed.
func (s *Session) IsClosing() bool { return s.closing.Err() != nil }

// BeginClose makes waiters give up and refuses new work. It reports whether
// this call was the first.
func (s *Session) BeginClose() (first bool) {
	first = !s.begun.Swap(true)
	s.close()
	return first
}

// Enter counts a call that may be granted something, for closing to wait for:
// what it gets when the client has begun to close, it gives back itself. It
// reports false, and counts nothing, when the client closes. Else the call ends
// with Leave.
func (s *Session) Enter() (open bool) {
	s.tasks.enter()
	if s.IsClosing() {
		s.tasks.done()
		return false
	}
	return true
}

// Leave ends what Enter began.
func (s *Session) Leave() { s.tasks.done() }

// PublishDenied notes that a release could not be told to those who wait. It is
// logged once in the client's life: locks are slower by it, not wrong.
func (s *Session) PublishDenied(channel string) {
	s.publishDenied.Do(func() {
		s.Log.Warn("redlatch: redis does not let us publish releases; waiters poll", slog.String("channel", channel))
	})
}

// FinishClose ends the watchdog and the wakes, and waits for calls that are
// still giving up and for background work, for these at most until ctx ends;
// then the rest is told to stop.
func (s *Session) FinishClose(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watchdog.Close()
		s.Wakes.Close() // may have to wait for go-redis, which makes a connection and hears no cancel
	}()
	err := s.tasks.finish(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return err
}

// Background runs work that outlives the call it belongs to. Its context ends
// when the client cannot wait for it any longer.
func (s *Session) Background(work func(ctx context.Context)) { s.tasks.start(work) }
