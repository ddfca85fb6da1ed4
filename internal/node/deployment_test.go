package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// wrapping is the usual form of a client with tracing.
type wrapping struct{ redis.UniversalClient }

func wrapped(rdb redis.UniversalClient, times int) redis.UniversalClient {
	for range times {
		rdb = wrapping{rdb}
	}
	return rdb
}

// DeploymentOf looks into ten wrappers, and not for ever.
func TestAClusterIsFoundInTenWrappers(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Minute})
	defer func() { require.NoError(t, cluster.Close()) }()
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, one.Close()) }()
	for times, found := range map[int]bool{0: true, 1: true, 10: true, 11: false} {
		d := DeploymentOf(wrapped(cluster, times))
		require.Equal(t, []bool{found, found}, []bool{d.KnownCluster, d.ReadTimeout == cluster.Options().ReadTimeout}, times)
		require.False(t, DeploymentOf(wrapped(one, times)).KnownCluster)
		require.Equal(t, found, DeploymentOf(wrapped(one, times)).Master != nil, times)
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
		plain := DeploymentOf(rdb)
		require.NotNil(t, plain.Pipeline)
		require.Equal(t, c.obeys, plain.Direct, c)
		hidden := DeploymentOf(wrapping{rdb})
		require.Nil(t, hidden.Pipeline)
		require.False(t, hidden.Direct)
		nodes := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: c.option, ReadTimeout: c.read, WriteTimeout: c.write,
		})
		cluster := DeploymentOf(nodes)
		require.Nil(t, cluster.Pipeline)
		require.NotNil(t, cluster.ClusterPipeline)
		require.Equal(t, c.obeys, cluster.Direct, c)
		require.Equal(t, []bool{false, false, true}, []bool{plain.KnownCluster, hidden.KnownCluster, cluster.KnownCluster})
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
		require.False(t, DeploymentOf(rdb).Direct)
		require.NoError(t, rdb.Close())
	}
}

// The AutoPipeline of a plain client sends pipelines to the one server of that client. That of a
// cluster client may send parts of a pipeline to nodes that hang.
func TestTheAutoPipelineOfAPlainClientGetsPipelines(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	for _, rdb := range []interface {
		AutoPipeline() (*redis.AutoPipeliner, error)
		Close() error
	}{one, many} {
		auto, err := rdb.AutoPipeline()
		require.NoError(t, err)
		d := DeploymentOf(auto)
		require.Equal(t, rdb == one, d.Pipeline != nil)
		require.False(t, d.Direct)
		require.Equal(t, rdb == many, d.KnownCluster)
		require.NoError(t, auto.Close())
		require.NoError(t, rdb.Close())
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
	ranges, err := DeploymentOf(wrapping{rdb}).ClusterSlots(t.Context())
	require.NoError(t, err)
	require.Equal(t, []SlotRange{{First: 0, Last: 99, Master: "127.0.0.1:1"}, {First: 100, Last: 16383, Master: "127.0.0.1:3"}}, ranges)
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
	addr, _ := DeploymentOf(rdb).FindEviction(t.Context())
	require.Empty(t, addr)
	require.Equal(t, 1, panics)
}

// The client of a lock may be in a wrapper, and clients of other work beside it.
func TestOtherClientsInAWrapperAreNoCluster(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Minute})
	defer func() { require.NoError(t, cluster.Close()) }()
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Hour})
	defer func() { require.NoError(t, one.Close()) }()
	type exporter struct{ rdb *redis.ClusterClient }
	require.False(t, DeploymentOf(struct {
		redis.UniversalClient
		spans exporter
	}{one, exporter{cluster}}).KnownCluster, "a field that is no client itself")
	d := DeploymentOf(struct {
		redis.UniversalClient
		cache *redis.Client
	}{cluster, one})
	require.True(t, d.KnownCluster)
	require.Equal(t, time.Minute, d.ReadTimeout)
	for _, empty := range []redis.UniversalClient{(*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		d := DeploymentOf(wrapping{empty})
		require.Nil(t, d.Master)
		require.Nil(t, d.FindEviction)
	}
}

// Any node may have left the cluster, and knows no masters then. So others are asked, but not for
// ever.
func TestAReloadAsksUntilANodeKnowsMasters(t *testing.T) {
	server := redistest.Embedded(t)
	master := []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}
	for name, c := range map[string]struct{ knowsAt, endsAt, asks int }{
		"the first":        {knowsAt: 1, asks: 1},
		"the third":        {knowsAt: 3, asks: 3},
		"none":             {asks: 8},
		"the context ends": {endsAt: 2, asks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			asks := 0
			rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				asks++
				if asks == c.endsAt {
					end()
				}
				if asks == c.knowsAt {
					return master, nil
				}
				return nil, nil
			}})
			defer func() { require.NoError(t, rdb.Close()) }()
			DeploymentOf(rdb).ReloadTopology(ctx)
			require.Equal(t, c.asks, asks)
		})
	}
}

// An AutoPipeliner that shows no client may send to several servers.
func TestAnUnknownAutoPipelineGetsNoPipelines(t *testing.T) {
	require.Nil(t, DeploymentOf(new(redis.AutoPipeliner)).Pipeline)
}

// The question about eviction is no part of any lock, and Close waits for it.
func TestTheQuestionAboutEvictionIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		isInfo := func(cmd []string) bool { return strings.EqualFold(cmd[0], "info") }
		fault := v.Inject(redistest.Rule{Match: isInfo, Action: redistest.Refuse("LOADING Redis is loading")})
		rdb := v.Client(func(o *redis.Options) { o.MaxRetries = 3 })
		addr, policy := DeploymentOf(rdb).FindEviction(t.Context())
		require.Empty(t, addr+policy)
		require.EqualValues(t, 1, fault.Bites())
	})
}

type panicking struct{ count *int }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panicking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { *p.count++; panic("a hook") }
}

func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
