package redlatch

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// wrapping is the usual form of a client with tracing.
type wrapping struct{ redis.UniversalClient }

func wrapped(rdb redis.UniversalClient, times int) redis.UniversalClient {
	for range times {
		rdb = wrapping{rdb}
	}
	return rdb
}

// New looks into ten wrappers, and not for ever.
func TestAClusterIsFoundInTenWrappers(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { require.NoError(t, cluster.Close()) }()
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, one.Close()) }()
	for times, found := range map[int]bool{0: true, 1: true, 10: true, 11: false} {
		require.Equal(t, found, knownServers(wrapped(cluster, times)).cluster == cluster, times)
		require.Nil(t, knownServers(wrapped(one, times)).cluster)
	}
}

// A client in a wrapper gets no pipelines. Callers send by themselves if it also obeys deadlines.
func TestAPlainClientGetsPipelinesAndDirectCommands(t *testing.T) {
	const never = -2 // go-redis sets no deadlines at all
	for _, c := range []struct {
		option, obeys bool
		read, write   time.Duration
	}{
		{false, false, 0, 0}, {true, true, 0, 0}, {true, true, -1, -1}, {true, true, time.Minute, time.Minute},
		{true, false, never, 0}, {true, false, 0, never},
	} {
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", ContextTimeoutEnabled: c.option, ReadTimeout: c.read, WriteTimeout: c.write,
		})
		plain, err := New(rdb)
		require.NoError(t, err)
		require.NotNil(t, plain.session.Pipeline)
		require.Equal(t, c.obeys, plain.session.Direct, c)
		hidden, err := New(wrapping{rdb})
		require.NoError(t, err)
		require.Nil(t, hidden.session.Pipeline)
		require.False(t, hidden.session.Direct)
		nodes := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: c.option, ReadTimeout: c.read, WriteTimeout: c.write,
		})
		cluster, err := New(nodes)
		require.NoError(t, err)
		require.Nil(t, cluster.session.Pipeline)
		require.NotNil(t, cluster.session.ClusterPipeline)
		require.Equal(t, c.obeys, cluster.session.Direct, c)
		for _, c := range []*Client{plain, hidden, cluster} {
			require.Equal(t, c == cluster, c.session.Cluster())
			require.NoError(t, c.Close(context.Background()))
		}
		require.NoError(t, rdb.Close())
		require.NoError(t, nodes.Close())
	}
}

// Such a client asks Redis what each command does, and waits for the answer without a deadline.
func TestAClientThatReadsFromReplicasSendsByWorkers(t *testing.T) {
	for _, set := range []func(o *redis.ClusterOptions){
		func(o *redis.ClusterOptions) { o.ReadOnly = true },
		func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		opt := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}
		set(opt)
		rdb := redis.NewClusterClient(opt)
		c, err := New(rdb)
		require.NoError(t, err)
		require.False(t, c.session.Direct)
		require.NoError(t, c.Close(context.Background()))
		require.NoError(t, rdb.Close())
	}
}

// The AutoPipeline of a plain client sends pipelines to the one server of that client. That of a cluster
// client may send parts of a pipeline to nodes that hang.
func TestTheAutoPipelineOfAPlainClientGetsPipelines(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	for _, rdb := range []interface {
		AutoPipeline() (*redis.AutoPipeliner, error)
		Close() error
	}{one, many} {
		auto, err := rdb.AutoPipeline()
		require.NoError(t, err)
		c, err := New(auto)
		require.NoError(t, err)
		require.Equal(t, rdb == one, c.session.Pipeline != nil)
		require.False(t, c.session.Direct)
		require.Equal(t, rdb == many, c.session.Cluster())
		require.NoError(t, c.Close(context.Background()))
		require.NoError(t, rdb.Close())
	}
}

func TestAProcessIsDescribedByItsHostAndID(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%s pid %d", host, os.Getpid()), defaultConfig().description)
}

func TestTheLimitsOfTheFenceRetention(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		0: true, time.Second: true, time.Second + time.Millisecond: true,
		1: false, 999 * time.Millisecond: false, time.Second + 1: false, -time.Second: false,
	} {
		c := defaultConfig()
		WithFenceRetention(d).applyClient(&c)
		_, err := c.complete()
		require.Equal(t, ok, err == nil, d)
	}
}

// The notice of a lock overrides that of its client, also if it is none.
func TestAWaitCallbackCanBeUnset(t *testing.T) {
	var s settings.Lock
	var told lock.Waiting
	WithWaitCallback(func(w lock.Waiting) { told = w }).applyLock(&s)
	s.Notice(settings.Waiting{Name: "orders", ID: "a:1", Position: 2})
	require.Equal(t, lock.Waiting{Name: "orders", ID: "a:1", Position: 2}, told)
	WithWaitCallback(nil).applyLock(&s)
	require.Nil(t, s.Notice)
}

// A repeated Close waits for the first one, or for the end of its context.
func TestARepeatedCloseWaitsForTheFirst(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c := &Client{closed: make(chan struct{})}
	require.ErrorIs(t, c.awaitClosed(ended), context.Canceled)
	time.AfterFunc(0, func() { close(c.closed) })
	require.NoError(t, c.awaitClosed(context.Background()))
	for range 100 { // a select between two that are ready draws one
		require.NoError(t, c.awaitClosed(ended))
	}
}

// A program can say which master serves which slots, without any CLUSTER SLOTS.
func TestTheMastersAreThoseOfTheClusterClient(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 99, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}, {Addr: "127.0.0.1:2"}}},
			{Start: 100, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:3"}}},
			{Start: 7, End: 7},
		}, nil
	}})
	defer func() { require.NoError(t, rdb.Close()) }()
	ranges, err := clusterSlots(wrapping{rdb}, rdb)(t.Context())
	require.NoError(t, err)
	require.Equal(t, []session.SlotRange{{First: 0, Last: 99, Master: "127.0.0.1:1"}, {First: 100, Last: 16383, Master: "127.0.0.1:3"}}, ranges)
}

// go-redis asks each master in a goroutine of its own, in which hooks of that node run.
func TestAPanicOfOneNodeEndsNotTheSearchForEviction(t *testing.T) {
	server := redistest.Embedded(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}, nil
	}})
	defer func() { require.NoError(t, rdb.Close()) }()
	panics := 0
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(panicking{&panics}) })
	addr, _ := knownServers(rdb).findEviction(t.Context())
	require.Empty(t, addr)
	require.Equal(t, 1, panics)
}

type panicking struct{ count *int }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panicking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { *p.count++; panic("a hook") }
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
