package stage

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// Faraway is longer than any test. If something happens earlier, a message caused it, and not a
// poll.
const Faraway = 20 * time.Minute

// Stage is one server, in real time or in virtual time.
type Stage struct {
	*testing.T
	Virtual bool
	Sim     *miniredis.Miniredis // in virtual time
	Server  *redistest.Server    // otherwise
	Admin   *redis.Client        // observes the server, without faults
}

// InVirtualTime runs a test with an embedded server. Waiting costs nothing there, and times are
// exact. A goroutine that is left makes it fail.
func InVirtualTime(t *testing.T, play func(s *Stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Last of all, because go-redis dials in the background, with pauses.
		t.Cleanup(func() { time.Sleep(15 * time.Second) })
		s := &Stage{T: t, Virtual: true, Sim: redistest.Bubble(t).Server}
		s.Admin = s.NewClient(&Wires{}, nil)
		play(s)
	})
}

// OnServer runs a test with a real server of its own.
func OnServer(t *testing.T, play func(s *Stage), args ...string) {
	t.Helper()
	srv := redistest.Start(t, args...)
	play(&Stage{T: t, Server: srv, Admin: srv.Control()})
}

// OnBoth runs a test in virtual time, and on a real server.
func OnBoth(t *testing.T, play func(s *Stage)) {
	t.Helper()
	t.Run("virtual time", func(t *testing.T) { t.Parallel(); InVirtualTime(t, play) })
	t.Run("server", func(t *testing.T) { t.Parallel(); OnServer(t, play) })
}

// NewClient makes a go-redis client whose connections are wires.
func (s *Stage) NewClient(n *Wires, mods []func(*redis.Options)) *redis.Client {
	opt := &redis.Options{
		Addr: "127.0.0.1:1", PoolSize: 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.Server != nil {
		opt.Addr, opt.PoolSize = s.Server.Addr(), 20
	}
	dial := func(context.Context) (net.Conn, error) { return s.Sim.Dial() }
	if s.Server != nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", opt.Addr)
		}
	}
	opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return n.dial(ctx, dial) }
	for _, mod := range mods {
		mod(opt)
	}
	rdb := redis.NewClient(opt)
	s.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Actor makes a client with very long leases and poll bounds, unless options set others.
func (s *Stage) Actor(options ...redlatch.Option) *Actor {
	s.Helper()
	return s.ActorAs(nil, options...)
}

// ActorAs makes an actor whose go-redis client has other options.
func (s *Stage) ActorAs(mods []func(*redis.Options), options ...redlatch.Option) *Actor {
	s.Helper()
	a := &Actor{Stage: s, Ctx: s.Context(), Net: &Wires{}, Log: &Logbook{}, Scripts: new(atomic.Int64)}
	a.Redis = s.NewClient(a.Net, mods)
	a.Redis.AddHook(scriptHook{answered: a.Scripts})
	options = append([]redlatch.Option{
		redlatch.WithLease(Faraway), redlatch.WithPollInterval(Faraway), redlatch.WithLogger(slog.New(a.Log)),
	}, options...)
	var err error
	a.Client, err = redlatch.New(a.Redis, options...)
	require.NoError(s, err)
	s.Cleanup(a.End)
	a.warmUp()
	return a
}

// Unlock releases a hold.
func (s *Stage) Unlock(h *lock.Hold) {
	s.Helper()
	require.NoError(s, h.Unlock(context.Background()))
}

// Receive waits for c to be closed. In virtual time, its limit is longer than Faraway, so that the
// test can check when c was closed.
func (s *Stage) Receive(c <-chan struct{}, what string) {
	s.Helper()
	limit := Guard
	if s.Virtual {
		limit = 10 * Faraway
	}
	select {
	case <-c:
	case <-time.After(limit):
		require.FailNow(s, "did not happen: "+what)
	}
}

// Await waits for a state that no message announces.
func (s *Stage) Await(what string, ok func() bool) {
	s.Helper()
	pause := time.Millisecond // it grows, because most states are there at once, or after seconds
	for deadline := time.Now().Add(Guard); !ok(); pause = min(2*pause, 16*time.Millisecond) {
		if s.Settle(); ok() {
			return
		}
		require.False(s, time.Now().After(deadline), "did not happen: %s", what)
		time.Sleep(pause)
	}
}

// Settle lets everybody do what they can do now. A real server has no such moment. There, settle
// only makes it likely that forbidden events show.
func (s *Stage) Settle() {
	if s.Virtual {
		synctest.Wait()
	}
}

// Channels are the channels that somebody listens to.
func (s *Stage) Channels() []string {
	s.Helper()
	all, err := s.Admin.PubSubChannels(context.Background(), "*").Result()
	require.NoError(s, err)
	return all
}

// Keys are all keys except the fences, which stay by design.
func (s *Stage) Keys() []string {
	s.Helper()
	all, err := s.Admin.Keys(context.Background(), "*").Result()
	require.NoError(s, err)
	var keys []string
	for _, k := range all {
		if !strings.HasPrefix(k, "redisson_lock_token:") {
			keys = append(keys, k)
		}
	}
	return keys
}

// PubSubClients are the connections that listen.
func (s *Stage) PubSubClients() []string {
	s.Helper()
	list, err := s.Admin.Do(context.Background(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(s, err)
	return strings.FieldsFunc(list, func(r rune) bool { return r == '\n' })
}

// NothingRemains waits until no lock is held and nobody listens.
func (s *Stage) NothingRemains() {
	s.Helper()
	s.Await("nothing remains", func() bool { return len(s.Keys()) == 0 && len(s.Channels()) == 0 })
}

// Guard is the time limit for things that must happen. Only a failure waits for it.
const Guard = time.Minute

// Within waits for c, and fails the test if no value comes.
func Within[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Guard):
		require.FailNow(t, "did not happen: "+what)
	}
	return v
}

// Queued returns when n waiters are in the queue.
func (s *Stage) Queued(name string, n int64) {
	s.Helper()
	s.Await(fmt.Sprintf("%d wait", n), func() bool {
		return s.Admin.ZCard(context.Background(), key.ForMutex(name).Queue).Val() == n
	})
}

// Line makes n waiters queue, one after the other, each from the next actor.
func (s *Stage) Line(name string, n int, actors ...*Actor) (all []*Asking) {
	s.Helper()
	had := s.Admin.ZCard(context.Background(), key.ForMutex(name).Queue).Val()
	for i := range n {
		a := actors[i%len(actors)]
		all = append(all, a.BeginFair(a.Ctx, name))
		s.Queued(name, had+int64(i)+1)
	}
	return all
}

// Served asserts that the waiters get the lock in this order. None of them gets it before the one
// before it has unlocked.
func (s *Stage) Served(all []*Asking) {
	s.Helper()
	for i, w := range all {
		h := w.Got()
		s.Settle()
		for _, later := range all[i+1:] {
			require.True(s, later.Pending(), "out of order")
		}
		require.True(s, h.Trusted())
		s.Unlock(h)
	}
}

// HintTo returns a message to the first waiter in the queue.
func (s *Stage) HintTo(a *Actor) (channel, acquisition string) {
	s.Helper()
	seen, _, err := a.FairMutex("door").Queue(s.Context(), 0, 1)
	require.NoError(s, err)
	client, _, _ := strings.Cut(seen[0].ID, ":")
	return "redlatch:client:" + client, seen[0].ID
}

// RedissonHolds makes an RLock of Redisson hold the name, or hand it to another owner.
func (s *Stage) RedissonHolds(name, owner string) {
	s.Helper()
	require.NoError(s, s.Admin.HSet(s.Context(), name, owner, 1).Err())
	require.NoError(s, s.Admin.PExpire(s.Context(), name, time.Hour).Err())
}

// RedissonFrees does what the unlock of an RLock does.
func (s *Stage) RedissonFrees(name string) {
	s.Helper()
	require.NoError(s, s.Admin.Del(s.Context(), name).Err())
	require.NoError(s, s.Admin.Publish(s.Context(), key.ForMutex(name).Channel, "0").Err())
}

// InGoroutine runs f in a goroutine, which f may end.
func InGoroutine(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// Withdrawn asserts that a call ended because its context was cancelled.
func (s *Stage) Withdrawn(w *Asking) {
	s.Helper()
	err := w.Failed()
	require.ErrorIs(s, err, redlatch.ErrNotAcquired)
	require.ErrorIs(s, err, context.Canceled)
}

// Dump is all data of the server, in its own serialization.
func (s *Stage) Dump() map[string]string {
	s.Helper()
	ctx := context.Background()
	all, err := s.Admin.Keys(ctx, "*").Result()
	require.NoError(s, err)
	stored := map[string]string{}
	for _, k := range all {
		bytes, err := s.Admin.Dump(ctx, k).Result()
		require.NoError(s, err)
		stored[k] = bytes + " " + s.Admin.PExpireTime(ctx, k).String()
	}
	return stored
}

// SetUser makes the user anew, with the rule and the further words.
func (s *Stage) SetUser(rule []string, more ...string) {
	s.Helper()
	args := []any{"ACL", "SETUSER", rule[0], "reset"}
	for _, word := range append(rule[1:len(rule):len(rule)], more...) {
		args = append(args, word)
	}
	require.NoError(s, s.Admin.Do(context.Background(), args...).Err())
}

// ActorOf makes an actor of an ACL user.
func (s *Stage) ActorOf(rule []string, options ...redlatch.Option) *Actor {
	s.Helper()
	login := func(o *redis.Options) { o.Username, o.Password = rule[0], "SECRET" }
	return s.ActorAs([]func(*redis.Options){login}, append(options, redlatch.WithPrefix("svc:"))...)
}
