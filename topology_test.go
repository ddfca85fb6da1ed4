package redlatch_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/internal/test/wrapped"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: locks on a cluster stay alive, however the program wraps its client.

// The usual ways to add tracing to a client.

// Wrappers wraps a go-redis client in the ways that programs do.

func TestAWrappedRingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, rdb := range wrapped.All(ring) {
		locks, err := redlatch.New(rdb)
		require.Nil(t, locks, name)
		stage.RequireOnly(t, redlatch.ErrConfig, err, name)
		require.ErrorContains(t, err, "ring", name)
	}
}

func TestAWrappedClusterClientIsOneOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	loop := &wrapped.Embedding{}
	loop.UniversalClient = loop
	for want, all := range map[bool]map[string]redis.UniversalClient{
		true:  wrapped.All(cluster),
		false: wrapped.All(stage.Unused(t)),
	} {
		all["itself"] = all["embedding"].(wrapped.Embedding).UniversalClient
		all["a loop"] = loop
		for name, rdb := range all {
			locks, err := redlatch.New(rdb)
			require.NoError(t, err, name)
			require.Equal(t, want && name != "a loop", stage.InCluster(locks), name)
		}
	}
}

// ofManySlots returns names that share no slot.
func ofManySlots(t testing.TB, n int) (names []string) {
	taken := map[int]bool{}
	for i := 0; len(names) < n; i++ {
		name := t.Name() + strconv.Itoa(i)
		if slot := key.Slot(name); !taken[slot] {
			taken[slot] = true
			names = append(names, name)
		}
	}
	return names
}

// kept holds a mutex, a place in its queue, a permit, and a place in the queue for permits, for
// each name, until check returns. None of them may be lost in that time.
func kept(t *testing.T, holder, waiter *redlatch.Client, names []string, check func(holds []*lock.Hold)) {
	ctx, cancel := context.WithCancel(t.Context())
	var again atomic.Int64
	notice := redlatch.WithWaitCallback(func(w lock.Waiting) {
		if w.Requeued {
			again.Add(1)
		}
	})
	var holds []*lock.Hold
	done := make(chan error, 2*len(names))
	for _, name := range names {
		h, err := holder.FairMutex(name).Lock(ctx)
		require.NoError(t, err)
		holds = append(holds, h)
		p := stage.MustAcquire(t, holder.Semaphore(name, 1), 1)
		defer func() { require.NoError(t, p.Release(context.Background())) }()
		defer func() { require.True(t, p.Trusted()) }()
		go func() { _, err := waiter.FairMutex(name, notice).Lock(ctx); done <- err }()
		go func() { _, err := waiter.Semaphore(name, 1, notice).Acquire(ctx, 1); done <- err }()
	}
	check(holds)
	for _, h := range holds {
		require.True(t, h.Trusted())
		require.NoError(t, h.Unlock(context.Background()))
	}
	require.Zero(t, again.Load(), "places in queues were lost")
	cancel()
	for range cap(done) {
		<-done
	}
}

// slotted answers like a cluster to a command with keys of several slots.
type slotted struct {
	*redis.Client
	refused atomic.Int64
}

type crossSlot struct{}

func (crossSlot) Error() string { return "CROSSSLOT Keys in request don't hash to the same slot" }
func (crossSlot) RedisError()   {}

func (c *slotted) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); args[0] == "evalsha" || args[0] == "eval" {
		for _, k := range args[3 : 3+redistest.KeyCount(args)] {
			if key.Slot(k.(string)) != key.Slot(args[3].(string)) {
				c.refused.Add(1)
				cmd.SetErr(crossSlot{})
				return crossSlot{}
			}
		}
	}
	return c.Client.Process(ctx, cmd)
}

func TestAClusterIsLearnedFromItsFirstRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		a, b := &slotted{Client: v.Client()}, &slotted{Client: v.Client()}
		holder, waiter := stage.LocksOn(t, a), stage.LocksOn(t, b)
		kept(t, holder, waiter, ofManySlots(t, 20), func([]*lock.Hold) {
			time.Sleep(time.Minute)
			refused := a.refused.Load() + b.refused.Load()
			require.NotZero(t, refused)
			require.Less(t, refused, int64(20), "it is learned once, not for each")
			time.Sleep(time.Minute)
			require.Equal(t, refused, a.refused.Load()+b.refused.Load())
		})
	})
}

// A cluster client asks Redis what a command does, unless the command says enough. If the user may
// not run COMMAND, go-redis asks before each command.
func TestAClusterIsNotAskedAboutCommands(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := stage.ClusterOfOne(t)()
	t.Cleanup(func() { _ = rdb.Close() })
	node, err := rdb.MasterForKey(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, node.Do(ctx, "ACL", "SETUSER", "default", "-command").Err())
	locks := stage.LocksOn(t, rdb)
	asked := func() string {
		stats, err := node.Info(ctx, "commandstats").Result()
		require.NoError(t, err)
		_, after, _ := strings.Cut(stats, "cmdstat_command:")
		line, _, _ := strings.Cut(after, "\r\n")
		return line
	}
	before := asked()
	for range 10 {
		h, err := locks.Mutex(redistest.Name(t)).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
	}
	require.Equal(t, before, asked())
	require.NoError(t, rdb.Set(ctx, "x", "y", 0).Err())
	require.NotEqual(t, before, asked(), "the question is counted")
}

func TestWrappedClientsKeepLocksOfAllSlotsOfACluster(t *testing.T) {
	t.Parallel()
	dial := stage.ClusterOfOne(t)
	play := func(t *testing.T, a, b redis.UniversalClient) {
		options := []redlatch.Option{redlatch.WithLease(3 * time.Second), redlatch.WithHeartbeat(2 * time.Second), redlatch.WithPollInterval(stage.Faraway)}
		kept(t, stage.LocksOn(t, a, options...), stage.LocksOn(t, b, options...), ofManySlots(t, 60), func(holds []*lock.Hold) {
			start := time.Now()
			require.Eventually(t, func() bool {
				for _, h := range holds {
					if h.TrustedUntil().Sub(start) < 12*time.Second && h.Trusted() {
						return false
					}
				}
				return true
			}, stage.Guard, 20*time.Millisecond, "several leases long")
		})
	}
	ours, theirs := dial(), dial()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	t.Run("embedding", func(t *testing.T) {
		t.Parallel()
		play(t, wrapped.Embedding{UniversalClient: ours}, &wrapped.Embedding{UniversalClient: theirs})
	})
	t.Run("opaque", func(t *testing.T) {
		t.Parallel()
		play(t, wrapped.Opaque{OnProcess: ours.Process, OnSubscribe: ours.Subscribe}, wrapped.Opaque{OnProcess: theirs.Process, OnSubscribe: theirs.Subscribe})
	})
}

// alone fails a test in which commands go out together.
type alone struct {
	redis.Hook // nil: only commands pass here

	t    *testing.T
	sent atomic.Int64
}

func (a *alone) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *alone) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "cluster" {
			a.sent.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
		return stage.ServerError("NOPERM none may")
	}
}

func (a *alone) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		a.t.Errorf("%d commands were sent together", len(cmds))
		return nil
	}
}

// The nodes of a cluster answer at different speeds. So the client sends each command by itself, as
// long as it does not know the nodes. It also does so with a go-redis client in a wrapper, which
// may send commands to more than one server.
func TestCommandsToUnknownServersAreNotSentTogether(t *testing.T) {
	t.Parallel()
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	for name, rdb := range map[string]redis.UniversalClient{"cluster": many, "wrapper": wrapped.Embedding{UniversalClient: one}} {
		t.Run(name, func(t *testing.T) {
			hook := &alone{t: t}
			rdb.AddHook(hook)
			defer rdb.Close()
			locks := stage.LocksOn(t, rdb)
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					_, err := locks.Mutex(fmt.Sprint("orders:", i)).Lock(t.Context())
					assert.ErrorIs(t, err, redlatch.ErrRefused)
				})
			}
			all.Wait()
			require.EqualValues(t, 100, hook.sent.Load())
		})
	}
}

// pipelines notes which commands were sent together.
type pipelines struct {
	mu  sync.Mutex
	all [][]redis.Cmder
}

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.mu.Lock()
		p.all = append(p.all, slices.Clone(cmds))
		p.mu.Unlock()
		return next(ctx, cmds)
	}
}

// Commands that wait go together in a cluster too, but only to one master. One that hangs delays no
// command to another.
func TestCommandsToOneMasterAreSentTogether(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "60000")
	rdb := c.Client(t)
	hook := &pipelines{}
	rdb.AddHook(hook)
	locks := stage.LocksOn(t, rdb)
	use := func(names []string) {
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				for range 50 {
					h, err := locks.Mutex(name).Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					assert.NoError(t, h.Unlock(t.Context()))
				}
			})
		}
		all.Wait()
	}
	use(slices.Concat(stage.NamesOfShard(0, 20), stage.NamesOfShard(1, 20), stage.NamesOfShard(2, 20)))
	c.Nodes[0].Pause()
	defer c.Nodes[0].Resume()
	hung := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); <-hung }()
	go func() {
		_, err := locks.Mutex(stage.NamesOfShard(0, 1)[0]).Lock(ctx)
		hung <- err
	}()
	use(slices.Concat(stage.NamesOfShard(1, 20), stage.NamesOfShard(2, 20)))
	hook.mu.Lock()
	defer hook.mu.Unlock()
	require.NotEmpty(t, hook.all)
	for _, cmds := range hook.all {
		shards := map[int]bool{}
		for _, cmd := range cmds {
			shards[stage.ShardOf(cmd.Args()[3].(string))] = true
		}
		require.Len(t, shards, 1)
	}
}
