// Package session connects one client with Redis. A [Session] has the client's id and its guess of
// the server's clock. It sends scripts with retries ([Do]), and runs the background work that must
// end before the client is closed.
package session

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Config configures a session.
type Config struct {
	Redis lua.Redis
	node.Deployment
	Log            *slog.Logger  // New makes it one that does not block; see callQueue
	Prefix         string        // of names of locks
	Description    string        // the description of this client's holders and waiters
	FenceRetention time.Duration // how long Redis keeps an unused fence; 0: always
	Observers      []event.Observer
}

// Session is shared by all locks of one client. Its methods may be called concurrently.
type Session struct {
	Config

	ID       string
	Watchdog *watchdog.Watchdog
	Hub      *pubsub.Hub

	echo       key.Mutex // of the echoes; nobody locks it
	lastNumber atomic.Int64
	closing    context.Context // ends when the client begins to close
	close      context.CancelFunc
	closeBegun atomic.Bool
	closeCause error // the cause with which the contexts of this client's holds end
	tasks      tasks

	logLines  callQueue[logLine]
	observers observers

	servers           servers
	abandonedAttempts tasks // calls of go-redis that nobody waits for, and the search for eviction
	cleanups          cleanupQueue
	unreleased        unreleased
	leaks             leakReporter
	renewers          [leaseKindCount]Renewer

	topology topology

	evictionChecked atomic.Bool

	slotChannels slotChannels

	publishDenied atomic.Bool
	panicLogged   atomic.Bool
}

// New makes a session. It does no I/O and starts no goroutine.
func New(cfg Config) *Session {
	s := &Session{Config: cfg, ID: uuid.NewString(), topology: topology{reload: cfg.ReloadTopology, nodes: nodes{ask: cfg.ClusterSlots}}}
	s.logLines.call = logLine.write
	s.observers.all = cfg.Observers
	s.observers.queue.call = s.notifyObservers
	s.observers.queue.linger, s.observers.queue.wake = eventLinger, make(chan struct{}, 1)
	next := slog.DiscardHandler
	if cfg.Log != nil {
		next = cfg.Log.Handler()
	}
	s.Log = slog.New(logHandler{next, &s.logLines})
	s.echo = key.ForEcho(cfg.Prefix, s.ID)
	var shard node.Master
	if cfg.KnownCluster {
		shard = cfg.Master
	}
	s.Hub = pubsub.New(pubsub.Config{
		Shard: shard, IsSharded: key.IsSharded,
		Redis: cfg.PubSub, Log: s.Log, Echo: s.sendEcho, EchoChannel: s.echo.Channel, OnTopologyDoubt: s.topology.refresh,
		OnDisconnect: func(err error) { s.Observe(context.Background(), event.Event{Kind: event.Disconnected, Err: err}) },
	})
	s.closing, s.close = context.WithCancel(context.Background())
	s.topology.within = s.closing
	s.closeCause = &closedError{lockerr.ErrClosed}
	senders := sender.Config{Redis: cfg.Redis, Pipeline: cfg.Pipeline, Direct: cfg.Direct, Master: cfg.Master, Panicked: s.panicked}
	masters := senders
	if cfg.ClusterPipeline != nil {
		masters.Pipeline = cfg.ClusterPipeline
		senders.Direct = false // several masters, with a clock each, may answer what goes to nobody known
	}
	s.servers.fallback, s.servers.config = newServer(senders), masters
	s.SetRenewer(Holds, s.renewHolds)
	s.Watchdog = watchdog.New(watchdog.Config{Renew: s.renewObserved, Server: s.topology.nodes.of, Logger: s.Log})
	return s
}

// NewAcquisitionID returns an id that no acquisition had before. The id has Redisson's form. Java
// clients read the number in it as the id of a thread.
func (s *Session) NewAcquisitionID() string {
	return s.ID + ":" + strconv.FormatInt(s.lastNumber.Add(1), 10)
}

// Now returns the guess of the clock of the server that has the keys of a name; see serverClock.
func (s *Session) Now(name string) lua.Time { return s.serverFor(name).clock.now() }

// Cluster reports whether the server is a cluster. The keys of a cluster belong to slots, and a
// node knows only its own subscribers. The client may learn this late, see renew.
func (s *Session) Cluster() bool { return s.topology.cluster.Load() }

// FoundCluster records that the server is a cluster, and puts the leases that the watchdog already
// has into groups by slot.
func (s *Session) FoundCluster() {
	s.topology.cluster.Store(true)
	s.Watchdog.Regroup(func(name string, group watchdog.Group) watchdog.Group {
		return s.Group(LeaseKind(group.Kind), name)
	})
}

// Closing returns a channel that is closed when the client begins to close.
func (s *Session) Closing() <-chan struct{} { return s.closing.Done() }

// IsClosing reports whether the client closes or has closed.
func (s *Session) IsClosing() bool { return s.closeBegun.Load() }

// BeginClose makes waiters give up, and refuses new requests. It does not block. It reports whether
// this call was the first.
func (s *Session) BeginClose() (first bool) {
	first = !s.closeBegun.Swap(true)
	s.close()
	return first
}

// CauseOfClose returns the cause with which the contexts of holds end when this client closes. It
// matches lockerr.ErrClosed. Each client has its own cause, so that Close can recognize it: if the
// context of Close ends with this cause, Close goes on. If it ends because another client closes,
// Close does not.
func (s *Session) CauseOfClose() error { return s.closeCause }

// IsOwnEnd reports whether cause is the one of CauseOfClose, and not an error around it. A caller
// that cancels a context with such an error has its own reason.
func (s *Session) IsOwnEnd(cause error) bool {
	own, ok := cause.(*closedError) //nolint:errorlint // an error around it is a caller's reason
	return ok && own == s.closeCause
}

// closedError is the type of CauseOfClose. IsOwnEnd compares its address.
type closedError struct{ error }

func (e *closedError) Unwrap() error { return e.error }

// BeginRequest counts a call that may get a grant, so that FinishClose waits for it. If the call
// gets a grant after the client began to close, the call releases it itself. If the client closes
// already, BeginRequest returns false and counts nothing. Otherwise the caller must call
// EndRequest.
func (s *Session) BeginRequest() (open bool) {
	s.tasks.add()
	if s.IsClosing() {
		s.tasks.done()
		return false
	}
	return true
}

// EndRequest ends the call that BeginRequest counted.
func (s *Session) EndRequest() { s.tasks.done() }

// WarnPublishDenied logs, once per client, that Redis did not let a release publish its message.
// Locks still work, but waiters notice a release later.
func (s *Session) WarnPublishDenied(channel string) {
	if s.publishDenied.CompareAndSwap(false, true) {
		s.Write(slog.LevelWarn, "redlatch: redis does not let us publish releases; waiters poll", slog.String("channel", channel))
	}
}

// Write writes a line to the log. It does not wait for the handler.
func (s *Session) Write(level slog.Level, text string, attrs ...slog.Attr) {
	s.Log.LogAttrs(context.Background(), level, text, attrs...)
}

// FinishClose closes the watchdog, the sender and the subscriptions. It blocks until they are
// closed, and until the counted calls and the background work have ended. If ctx ends first,
// FinishClose cancels that work and returns the reason why ctx ended. It also returns the errors of
// releases that it began before, and that failed in the end; see RetryRelease.
//
// Before it returns, FinishClose waits a moment for attempts that were left behind, and for reloads
// of the topology, but not after the end of ctx. It also waits an instant for the log handler.
// Nobody can stop either of them.
func (s *Session) FinishClose(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watchdog.Close()
		s.servers.close()
		s.Hub.Close() // may have to wait for go-redis, which dials and ignores a cancel
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
	_ = s.topology.tasks.wait(bounded)
	s.leaks.flush(s.Log)
	s.observers.queue.flush()
	s.logLines.flush()
	return oneline.Errors(err, s.unreleased.error())
}

// RunCallback runs code of the user, in the middle of a request that BeginRequest counts. It
// returns when code does. code may block for any time, and may close the client, so closing does
// not wait for it.
//
// If the client begins to close before code returns, abandon runs in a goroutine of its own. It
// gives up what the request has in Redis. RunCallback then returns false: the request must end, and
// has nothing left to give up.
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

// Background starts work in a goroutine, and FinishClose waits for it. The context of work ends
// when FinishClose cannot wait any longer.
func (s *Session) Background(work func(ctx context.Context)) { s.tasks.start(work) }
