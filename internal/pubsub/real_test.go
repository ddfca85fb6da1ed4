package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// These tests repeat simulated tests, for behaviour that only a real server can confirm. None of
// them depends on how long things take. The limit of eventually is for calls that hang.

func newHub(t *testing.T, rdb redis.UniversalClient, mods ...func(*Config)) (*Hub, *logBook) {
	book := &logBook{}
	cfg := Config{Redis: node.SubscriberOf(rdb), Log: slog.New(book), timings: usualTimings}
	cfg.linger, cfg.retryMax = 20*time.Millisecond, 50*time.Millisecond
	for _, mod := range mods {
		mod(&cfg)
	}
	h := New(cfg)
	t.Cleanup(h.Close)
	return h, book
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, time.Millisecond, what)
}

// requireNothingLeft waits until neither the server nor h knows of a channel.
func requireNothingLeft(t *testing.T, ops *redis.Client, h *Hub) {
	t.Helper()
	eventually(t, func() bool {
		names, err := ops.PubSubChannels(t.Context(), "*").Result()
		h.mu.Lock()
		defer h.mu.Unlock()
		return err == nil && len(names) == 0 && len(h.state.channels) == 0
	}, "everything is unsubscribed")
	requireEmpty(t, h)
}

// requireWake waits for a wake-up.
func requireWake(t *testing.T, s *Subscription) {
	t.Helper()
	select {
	case <-s.C():
	case <-time.After(20 * time.Second):
		require.Fail(t, "no wake")
	}
}

func requireLive(t *testing.T, s *Subscription) {
	t.Helper()
	require.NoError(t, s.Ready(t.Context()))
	require.True(t, s.Live())
}

// calls returns how often the server has run a command since it started.
func calls(t *testing.T, ops *redis.Client, verb string) (n int) {
	t.Helper()
	info, err := ops.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	if _, rest, found := strings.Cut(info, "cmdstat_"+verb+":calls="); found {
		_, err = fmt.Sscanf(rest, "%d", &n)
		require.NoError(t, err)
	}
	return n
}

func subscribers(t *testing.T, ops *redis.Client) []string {
	t.Helper()
	list, err := ops.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(list), " ", "_"))
}

func TestReal_WakesOverOneConnectionAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	const n = 10_000
	srv := redistest.Start(t)
	ops := srv.Control()
	h, _ := newHub(t, srv.Client(t))
	subs := make([]*Subscription, n)
	for i := range subs {
		subs[i] = h.Subscribe(fmt.Sprint("channel-", i))
	}
	for _, sub := range subs {
		requireLive(t, sub)
	}
	require.Len(t, subscribers(t, ops), 1)
	require.Less(t, calls(t, ops, "subscribe"), n/20)
	for i := range 100 {
		require.NoError(t, ops.Publish(t.Context(), fmt.Sprint("channel-", i*100), "0").Err())
		requireWake(t, subs[i*100])
	}
	for _, sub := range subs {
		sub.Close()
	}
	requireNothingLeft(t, ops, h)
	require.Less(t, calls(t, ops, "unsubscribe"), n/20)
}

func TestReal_AnsweredPingsKeepTheConnection(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			h, _ := newHub(t, redistest.Shared(t).Client(t, func(o *redis.Options) { o.Protocol = protocol }),
				func(c *Config) { c.ping = 30 * time.Millisecond })
			h.Subscribe(redistest.Name(t))
			eventually(t, func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.state.pings >= 5 // of one connection; an unanswered one ends it
			}, "pings are answered")
		})
	}
}

func TestReal_KilledInALoop(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ops := srv.Control()
	h, book := newHub(t, srv.Client(t))
	subs := []*Subscription{h.Subscribe("a"), h.Subscribe("a"), h.Subscribe("b")}
	for range 20 {
		for _, sub := range subs {
			eventually(t, sub.Live, "it comes back by itself")
			isWoken(sub)
		}
		require.NoError(t, ops.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		for _, sub := range subs {
			requireWake(t, sub)
		}
	}
	for _, sub := range subs {
		eventually(t, sub.Live, "it comes back by itself")
		isWoken(sub)
	}
	require.NoError(t, ops.Publish(t.Context(), "a", "0").Err())
	requireWake(t, subs[0])
	requireWake(t, subs[1])
	require.Len(t, subscribers(t, ops), 1)
	require.LessOrEqual(t, calls(t, ops, "subscribe"), 22, "one per connection, after the first")
	require.LessOrEqual(t, book.count(slog.LevelWarn), 1)
}

func TestReal_ServerThatIsDownStoppedAndStartedAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	h, book := newHub(t, srv.Client(t), func(c *Config) { c.ping = 300 * time.Millisecond })
	srv.Kill()
	a := h.Subscribe("a")
	require.NoError(t, a.Ready(t.Context()))
	require.False(t, a.Live())

	srv.Restart()
	eventually(t, a.Live, "started")
	requireWake(t, a)

	srv.Restart()
	requireWake(t, a)
	eventually(t, a.Live, "started again")

	srv.Pause()
	eventually(t, func() bool { return !a.Live() }, "silence is noticed")
	srv.Resume()
	eventually(t, a.Live, "resumed")
	isWoken(a)
	require.NoError(t, srv.Control().Publish(t.Context(), "a", "0").Err())
	requireWake(t, a)
	require.Equal(t, 1, book.count(slog.LevelWarn))
	require.Equal(t, 1, book.count(slog.LevelInfo))
}

func TestReal_AclDeniesChannelsAndTheCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ops := srv.Control()
	acl := func(rules ...any) {
		require.NoError(t, ops.Do(t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err())
	}
	acl("on", ">secret", "~*", "resetchannels", "&allowed-*", "+@all")
	h, book := newHub(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }),
		func(c *Config) { c.recheck = 20 * time.Millisecond })

	var allowed, other []*Subscription
	for i := range 100 {
		allowed = append(allowed, h.Subscribe(fmt.Sprint("allowed-", i)))
		if i%30 == 0 {
			other = append(other, h.Subscribe(fmt.Sprint("other-", i)))
		}
	}
	for _, sub := range allowed {
		requireLive(t, sub)
	}
	for _, sub := range other {
		require.NoError(t, sub.Ready(t.Context()))
		require.False(t, sub.Live())
	}
	require.Len(t, subscribers(t, ops), 1)

	acl("&other-*")
	for _, sub := range other {
		eventually(t, sub.Live, "allowed now")
	}

	acl("-subscribe") // does not end connections; the next ones are refused everything
	require.NoError(t, ops.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	eventually(t, func() bool { return !allowed[0].Live() }, "the connection is gone")
	late := h.Subscribe("allowed-late")
	require.NoError(t, late.Ready(t.Context()))
	require.False(t, late.Live())

	acl("+subscribe")
	for _, sub := range append(allowed, late) {
		eventually(t, sub.Live, "allowed again")
	}
	require.LessOrEqual(t, book.count(slog.LevelWarn), 2, "one for the refusal, one for the connection")
	require.LessOrEqual(t, book.count(slog.LevelInfo), 2)
}

func TestReal_FloodOnlySetsTheWake(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ops := srv.Control()
	h, _ := newHub(t, srv.Client(t))
	slow, other := h.Subscribe("a"), h.Subscribe("b")
	requireLive(t, slow)
	requireLive(t, other)
	pipe := ops.Pipeline()
	for range 20_000 {
		pipe.Publish(t.Context(), "a", "forged")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.NoError(t, ops.Publish(t.Context(), "b", "0").Err())
	requireWake(t, other) // so the hub has read all messages of a
	require.True(t, isWoken(slow))
	require.False(t, isWoken(slow))
	require.True(t, slow.Live())
}

// Many waiters subscribe, listen and leave while connections end, and one that stays keeps getting
// messages. At the end, neither the hub nor the server knows a channel.
func TestReal_Hammer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ops := srv.Control()
	h, _ := newHub(t, srv.Client(t), func(c *Config) { c.linger = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 300 {
				comeAndGo(ctx, h, fmt.Sprint("channel-", rand.N(20)))
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = ops.Publish(ctx, fmt.Sprint("channel-", rand.N(20)), "0").Err()
		}
	})
	for range 10 {
		stays := h.Subscribe("stays")
		eventually(t, stays.Live, "live between the kills")
		require.NoError(t, ops.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
		stays.Close()
	}
	cancel()
	wg.Wait()
	requireNothingLeft(t, ops, h)
}

func comeAndGo(ctx context.Context, h *Hub, channel string) {
	sub := h.Subscribe(channel)
	defer sub.Close()
	_ = sub.Ready(ctx)
	wait := time.NewTimer(rand.N(time.Millisecond))
	defer wait.Stop()
	select {
	case <-sub.C():
	case <-wait.C:
	}
	sub.Live()
}
