package pubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// needsShardedChannels skips a test on Redis 6.2, which has none.
func needsShardedChannels(t *testing.T) {
	t.Helper()
	if v := redistest.Start(t).Version(); strings.HasPrefix(v, "6.") {
		t.Skipf("Redis %s has no sharded channels", v)
	}
}

// newShardedHub makes a hub whose channels are all on the node that shard returns.
func newShardedHub(t *testing.T, rdb redis.UniversalClient, shard func(ctx context.Context, channel string) (*redis.Client, error), mods ...func(*Config)) *Hub {
	h, _ := newHub(t, rdb, append([]func(*Config){func(c *Config) { c.Shard = node.MasterOf(shard) }}, mods...)...)
	return h
}

// requireShardWake publishes to a sharded channel until it wakes the waiter.
func requireShardWake(t *testing.T, ops *redis.Client, sub *Subscription, channel string, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := ops.SPublish(t.Context(), channel, "0").Result()
		return err == nil && n > 0
	}, within, 5*time.Millisecond, "nobody listens to the sharded channel")
	requireWake(t, sub)
}

// With this setting, a node of a cluster refuses SSUBSCRIBE with CLUSTERDOWN for two seconds after
// its start.
func TestReal_ShardedChannelIsBackSoonAfterTheRestartOfItsNode(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	cluster := redistest.StartCluster(t, 1, 0, "--cluster-allow-pubsubshard-when-down", "no")
	node := cluster.Nodes[0]
	rdb := cluster.Client(t)
	h := newShardedHub(t, rdb, rdb.MasterForKey)
	sub := h.Subscribe("a")
	requireLive(t, sub)
	requireShardWake(t, node.Control(), sub, "a", 5*time.Second)
	node.Restart()
	requireShardWake(t, node.Control(), sub, "a", 10*time.Second)
}

// A listener may have missed a message before the sharded channel was confirmed. The classic
// channel of that name cannot say so, because it may be refused.
func TestReal_TheConfirmationOfAShardedChannelIsAGap(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	rdb := redistest.Start(t).Client(t)
	h := newShardedHub(t, rdb, func(context.Context, string) (*redis.Client, error) { return rdb, nil })
	gaps, messages := make(chan struct{}, 10), make(chan string, 10)
	h.Listen("a", func(text string) { messages <- text }, func() { gaps <- struct{}{} })
	select {
	case <-gaps:
	case text := <-messages:
		t.Fatalf("a message %q that nobody sent", text)
	case <-time.After(time.Minute):
		t.Fatal("the listener was not notified of the gap")
	}
}

func TestReal_ShardedChannelIsFollowedIfItsNodeWasUnknown(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	for name, fault := range map[string]func() error{
		"error":  func() error { return errors.New("no node answers") },
		"goexit": func() error { runtime.Goexit(); return nil },
		"panic":  func() error { panic("of a hook") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := srv.Client(t)
			var asked atomic.Int32
			h := newShardedHub(t, rdb, func(context.Context, string) (*redis.Client, error) {
				if asked.Add(1) <= 2 {
					return nil, fault()
				}
				return rdb, nil
			})
			sub := h.Subscribe("a")
			requireLive(t, sub)
			requireShardWake(t, srv.Control(), sub, "a", 10*time.Second)
		})
	}
}

// The hub forgets nodes that have no channels. Clusters may replace their nodes again and again.
func TestReal_HubsOfNodesThatLeftAreClosed(t *testing.T) {
	needsShardedChannels(t)
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	var node atomic.Pointer[redis.Client]
	h := newShardedHub(t, rdb, func(context.Context, string) (*redis.Client, error) { return node.Load(), nil },
		func(c *Config) { c.idle = 500 * time.Millisecond })
	node.Store(rdb)
	sub := h.Subscribe("a")
	requireShardWake(t, srv.Control(), sub, "a", 5*time.Second)
	for range 3 {
		before := srv.Control().Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").String()
		node.Store(srv.Client(t))
		eventually(t, func() bool {
			return srv.Control().Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").String() != before
		}, "another node")
		requireShardWake(t, srv.Control(), sub, "a", 5*time.Second)
	}
	sub.Close()
	eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "pubsub.(*Hub).runConnection") == 0 && strings.Count(string(stacks), "pubsub.(*Hub).awaitWork(") == 1
	}, "the hubs of the nodes have ended")
}

// A channel of an earlier wait may still be subscribed. Then no confirmation makes the waiter ask,
// but a message may have come before the hub listened again.
func TestReal_ShardedChannelThatLingersWakesItsNewWaiter(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	var slow atomic.Bool
	h := newShardedHub(t, rdb, func(context.Context, string) (*redis.Client, error) {
		if slow.Load() {
			time.Sleep(300 * time.Millisecond)
		}
		return rdb, nil
	})
	h.mu.Lock()
	h.cfg.linger = time.Minute // of the hub of the node
	h.mu.Unlock()
	sub := h.Subscribe("a")
	requireLive(t, sub)
	requireShardWake(t, srv.Control(), sub, "a", 5*time.Second)
	sub.Close()
	eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.state.channels) == 0 }, "forgotten")
	time.Sleep(1100 * time.Millisecond) // shards forgets it too
	slow.Store(true)
	sub = h.Subscribe("a")
	requireLive(t, sub)
	require.EqualValues(t, 1, srv.Control().SPublish(t.Context(), "a", "0").Val())
	select {
	case <-sub.C():
	case <-time.After(2 * time.Second):
		require.Fail(t, "the message was lost")
	}
}

// Each dial goes on until the hubs of all nodes are closing. So Close must not close one after the
// other.
func TestClosingWaitsForAllHungNodesAtOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	nodes := make([]*redis.Client, 10)
	var dialling, closing sync.WaitGroup
	for i := range nodes {
		dialling.Add(1)
		closing.Add(1)
		var first sync.Once
		nodes[i] = srv.Client(t, func(o *redis.Options) {
			o.DialTimeout = time.Hour
			o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				first.Do(func() {
					dialling.Done()
					<-ctx.Done()
					closing.Done()
				})
				closing.Wait()
				return nil, errors.New("timeout")
			}
		})
	}
	h := newShardedHub(t, rdb, func(_ context.Context, channel string) (*redis.Client, error) {
		return nodes[int(channel[0]-'a')], nil
	}, func(c *Config) { c.dial = time.Hour })
	for i := range nodes {
		h.Subscribe(string(rune('a' + i)))
	}
	dialling.Wait()
	h.Close()
}

// Sharded channels of one command must share a slot. So each has a command of its own.
func TestReal_ShardedChannelsOfSeveralSlotsAreReceived(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	cluster := redistest.StartCluster(t, 1, 0)
	rdb := cluster.Client(t)
	h := newShardedHub(t, rdb, rdb.MasterForKey)
	var subs []*Subscription
	for i := range 20 {
		subs = append(subs, h.Subscribe(fmt.Sprint(i)))
	}
	for i, sub := range subs {
		requireLive(t, sub)
		requireShardWake(t, cluster.Nodes[0].Control(), sub, fmt.Sprint(i), 20*time.Second)
	}
}

// The sender of such a message publishes to the classic channel too.
func TestAMessageThatIsSentTwiceWakesOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		sub := s.hub.Subscribe("a")
		s.sleep(time.Millisecond)
		isWoken(sub)
		s.hub.onShardMessage("a", SentTwice)
		require.False(t, isWoken(sub))
		s.hub.onShardMessage("a", "0")
		require.True(t, isWoken(sub))
	})
}

// A lost channel makes the client learn the topology, and not for ever. One that was never
// confirmed does not: the server may refuse it.
func TestALostShardedChannelLooksAtTheTopologyAFewTimes(t *testing.T) {
	looks := 0
	h := New(Config{OnTopologyDoubt: func(context.Context) { looks++ }})
	s := newShards(h)
	confirmed := new(atomic.Bool)
	s.subs["a"] = shardSub{sub: &Subscription{hub: h}, everConfirmed: confirmed}
	for range 2 * lookAgain {
		s.lookAtTopology()
	}
	require.Zero(t, looks)
	confirmed.Store(true)
	for range 2 * lookAgain {
		s.lookAtTopology()
	}
	require.Equal(t, lookAgain, looks)
}

// A refused classic channel is tried again after the usual time, whatever the refusal says. The hub
// forgets a refused sharded channel that nobody uses any more.
func TestRefusalsOfShardedChannels(t *testing.T) {
	now := time.Now()
	passing := refusal("CLUSTERDOWN The cluster is down")
	for _, sharded := range []bool{true, false} {
		cfg := Config{sharded: sharded}.withDefaults()
		r := newHubState(cfg)
		r.connected = true
		sub := &Subscription{}
		r.add("a", sub)
		batch := markSubscribing(r.unsentBatch())
		require.Len(t, batch, 1)
		r.markDenied(batch[0], passing, now)
		want := cfg.recheck
		if sharded {
			want = shardPause
		}
		require.Equal(t, now.Add(want), r.recheckAt)
		r.remove(sub, now)
		require.Equal(t, sharded, len(r.channels) == 0)
		require.Equal(t, cfg.recheck, r.recheckPause(refusal("NOPERM no")))
	}
}

// refusal is an error reply.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// A new channel costs one look at the topology, however many channels there are.
func TestReal_ManyShardedChannelsCostLittle(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	const n = 500
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	var asked atomic.Int64
	h := newShardedHub(t, rdb, func(context.Context, string) (*redis.Client, error) { asked.Add(1); return rdb, nil })
	began := time.Now()
	for i := range n {
		h.Subscribe(fmt.Sprint(i))
		time.Sleep(time.Millisecond)
	}
	eventually(t, func() bool { return asked.Load() >= n }, "asked for each channel")
	updates := int64(time.Since(began)/time.Second) + 1
	require.LessOrEqual(t, asked.Load(), n*(1+updates))
}

// A slot may move and come back at once. A hub whose user only waits sends no command that is
// redirected.
func TestReal_ShardedChannelIsFollowedToAnotherNodeAndBack(t *testing.T) {
	t.Parallel()
	needsShardedChannels(t)
	cluster := redistest.StartCluster(t, 2, 0)
	rdb := cluster.Client(t)
	const name = "a"
	slot := rdb.ClusterKeySlot(t.Context(), name).Val()
	from, to := cluster.Nodes[0].Control(), cluster.Nodes[1].Control()
	if slot >= 8192 {
		from, to = to, from
	}
	h := newShardedHub(t, rdb, rdb.MasterForKey, func(c *Config) { c.OnTopologyDoubt = func(ctx context.Context) { rdb.ReloadState(ctx) } })
	sub := h.Subscribe(name)
	requireLive(t, sub)
	requireShardWake(t, from, sub, name, 5*time.Second)
	for range 2 {
		id := to.Do(t.Context(), "CLUSTER", "MYID").Val()
		for _, node := range []*redis.Client{to, from} {
			require.NoError(t, node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
		}
		requireShardWake(t, to, sub, name, 6*time.Second)
		from, to = to, from
	}
}
