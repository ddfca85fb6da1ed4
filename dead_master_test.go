//go:build topologies

package redlatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// go-redis connects to the master of the first channel. If that master is dead, the client connects
// to another node, and its waiters get the messages of the other masters.
func TestAConnectionToADeadMasterIsMadeElsewhere(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "120000") // nobody takes over
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holder := stage.LocksOn(t, c.Client(t), redlatch.WithLease(time.Hour))
	waiter := stage.LocksOn(t, c.Client(t, func(o *redis.ClusterOptions) { o.Addrs = append(o.Addrs, c.Nodes[1].Addr()) }), onlyMessages...)
	name := stage.NamesOfShard(1, 1)[0]
	held, err := holder.Mutex(name).Lock(ctx)
	require.NoError(t, err)
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel()
	for _, ofDead := range stage.NamesOfShard(0, 300) { // some of these channels is nearly always the first
		_, err := holder.Mutex(ofDead).Lock(ctx)
		require.NoError(t, err)
		waits.Go(func() { _, _ = waiter.Mutex(ofDead).Lock(ctx) })
	}
	got := make(chan *lock.Hold, 1)
	waits.Go(func() {
		if h, err := waiter.Mutex(name).Lock(ctx); err == nil {
			got <- h
		}
	})
	channel := key.ForMutex(name).Channel
	require.Eventually(t, func() bool {
		return listens(t, c.Nodes[0], channel) || listens(t, c.Nodes[1], channel) || listens(t, c.Nodes[2], channel)
	}, stage.Guard, time.Millisecond)
	onDead := listens(t, c.Nodes[0], channel)
	c.Nodes[0].Kill()
	if onDead {
		require.Eventually(t, func() bool {
			return listens(t, c.Nodes[1], channel) || listens(t, c.Nodes[2], channel)
		}, stage.Guard, time.Millisecond)
	}
	require.NoError(t, held.Unlock(ctx))
	h := stage.Within(t, got, "a message hands the lock over")
	require.NoError(t, h.Unlock(ctx))
	require.True(t, onDead, "the connection was to the master that died")
}
