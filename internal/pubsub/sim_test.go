package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

// sim is a hub and a server in virtual time.
type sim struct {
	t   *testing.T
	hub *Hub
	rdb *redis.Client // the hub's
	ops *redis.Client // for publishing and inspecting, never at fault
	log *logBook

	mini *miniredis.Miniredis

	dialTakes time.Duration

	mu       sync.Mutex
	refuse   bool // dials fail
	conns    []*pipe
	dials    []time.Time // also those that failed
	pubsubs  []*redis.PubSub
	commands [][]string
	hook     func(verb string, channels []string) (reply string, handled bool)
}

// simulate runs test in a bubble. If anything still runs at its end, it panics.
func simulate(t *testing.T, test func(t *testing.T, s *sim), mods ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, mods)
		defer s.end()
		test(t, s)
	})
}

func newSim(t *testing.T, mods []func(*Config)) *sim {
	s := &sim{t: t, mini: miniredis.NewMiniRedis(), log: &logBook{}}
	s.ops = redis.NewClient(options(func(context.Context, string, string) (net.Conn, error) { return s.mini.Dial() }))
	require.NoError(t, s.ops.Ping(t.Context()).Err())
	s.mini.Server().SetPreHook(s.preHook)
	s.rdb = redis.NewClient(options(s.dial))
	cfg := Config{Redis: s, Log: slog.New(s.log), timings: usualTimings}
	for _, mod := range mods {
		mod(&cfg)
	}
	s.hub = New(cfg)
	return s
}

func options(dial func(context.Context, string, string) (net.Conn, error)) *redis.Options {
	return &redis.Options{
		Addr:                     "127.0.0.1:1",
		Dialer:                   dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (s *sim) end() {
	s.hub.Close()
	_ = s.rdb.Close()
	_ = s.ops.Close()
	s.mini.Close()
}

// Subscribe makes the sim a Redis whose PubSub the test can use.
func (s *sim) Subscribe(ctx context.Context, channels ...string) node.PubSub {
	ps := s.rdb.Subscribe(ctx, channels...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pubsubs = append(s.pubsubs, ps)
	return ps
}

func (s *sim) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.dials = append(s.dials, time.Now())
	refuse := s.refuse
	s.mu.Unlock()
	time.Sleep(s.dialTakes)
	if refuse {
		return nil, errors.New("connection refused")
	}
	c, err := s.mini.Dial()
	if err != nil {
		return nil, err
	}
	p := &pipe{Conn: c, gone: make(chan struct{})}
	s.mu.Lock()
	s.conns = append(s.conns, p)
	s.mu.Unlock()
	return p, nil
}

// preHook gets pub/sub commands before the server does. If it handles a command with an empty
// reply, the client gets no reply.
func (s *sim) preHook(peer *server.Peer, verb string, args ...string) bool {
	if !slices.Contains([]string{"HELLO", "SUBSCRIBE", "UNSUBSCRIBE", "PING"}, verb) {
		return false
	}
	s.mu.Lock()
	s.commands = append(s.commands, append([]string{verb}, args...))
	hook := s.hook
	s.mu.Unlock()
	if hook == nil {
		return false
	}
	reply, handled := hook(verb, args)
	if handled && reply != "" {
		peer.WriteError(reply)
	}
	return handled
}

func (s *sim) onCommand(hook func(verb string, channels []string) (reply string, handled bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// sent returns how often the hub sent a command since the start.
func (s *sim) sent(verb string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c[0] == verb {
			n++
		}
	}
	return n
}

// helloes returns the protocols that the hub asked for.
func (s *sim) helloes() (protocols []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c[0] == "HELLO" {
			protocols = append(protocols, c[1])
		}
	}
	return protocols
}

func (s *sim) dialled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dials)
}

func (s *sim) setRefuse(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// conn returns the hub's latest connection.
func (s *sim) conn() *pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

func (s *sim) pubsub() *redis.PubSub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pubsubs[len(s.pubsubs)-1]
}

func (s *sim) publish(channel string) {
	s.t.Helper()
	require.NoError(s.t, s.ops.Publish(context.Background(), channel, "0").Err())
	synctest.Wait()
}

func (s *sim) subscribed() []string {
	s.t.Helper()
	names, err := s.ops.PubSubChannels(context.Background(), "*").Result()
	require.NoError(s.t, err)
	return names
}

// live subscribes and waits for the confirmation.
func (s *sim) live(channel string) *Subscription {
	s.t.Helper()
	sub := s.hub.Subscribe(channel)
	require.NoError(s.t, sub.Ready(s.t.Context()))
	require.True(s.t, sub.Live())
	return sub
}

func (s *sim) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// isWoken takes a wake-up if there is one.
func isWoken(s *Subscription) bool {
	select {
	case <-s.C():
		return true
	default:
		return false
	}
}

// pipe is a connection that can be cut, swallow everything while it stays open, or only fail
// writes.
type pipe struct {
	net.Conn
	once sync.Once
	gone chan struct{}

	deaf, mute atomic.Bool
	lag        atomic.Int64              // how late a reader learns of the end
	held       atomic.Pointer[time.Time] // a reader gets nothing before
}

func (p *pipe) hold(until time.Time) { p.held.Store(&until) }

func (p *pipe) swallow()    { p.deaf.Store(true) }
func (p *pipe) failWrites() { p.mute.Store(true) }

func (p *pipe) Read(b []byte) (int, error) {
	for {
		n, err := p.Conn.Read(b)
		if until := p.held.Load(); until != nil {
			time.Sleep(time.Until(*until))
		}
		if err != nil {
			time.Sleep(time.Duration(p.lag.Load()))
		}
		if err != nil || !p.deaf.Load() {
			return n, err
		}
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	switch {
	case p.mute.Load():
		return 0, errors.New("broken pipe")
	case p.deaf.Load():
		return len(b), nil
	}
	return p.Conn.Write(b)
}

// isClosed reports whether the hub has closed the connection.
func (p *pipe) isClosed() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.gone) })
	return p.Conn.Close()
}

// cut ends the connection as the other side would.
func (p *pipe) cut() { _ = p.Conn.Close() }

// logBook is a log handler that keeps its records.
type logBook struct {
	mu      sync.Mutex
	records []slog.Record
}

func (l *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logBook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logBook) WithGroup(string) slog.Handler            { return l }

func (l *logBook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *logBook) count(level slog.Level) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Level == level {
			n++
		}
	}
	return n
}
