package redlatch_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// A master of a cluster dies, and its replica takes over. go-redis would learn that after an hour
// here. The client has it learn earlier, so locks of that shard are served again, and holds outlast
// the failure.
func TestAClusterIsServedAfterAMasterFailed(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"it died":            (*redistest.Server).Kill,
		"it answers no more": (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1, "--cluster-node-timeout", "3000")
			ctx := context.Background()
			client := func() *redlatch.Client {
				rdb := c.Client(t, func(o *redis.ClusterOptions) {
					o.Addrs = append(o.Addrs, c.Nodes[1].Addr(), c.Nodes[2].Addr())
					o.ClusterStateReloadInterval = time.Hour
				})
				return stage.LocksOn(t, rdb, redlatch.WithLease(time.Minute))
			}
			a, b := client(), client()
			first := stage.NamesOfShard(0, 3)
			held, err := a.Mutex(first[0]).Lock(ctx)
			require.NoError(t, err)
			fairHeld, err := a.FairMutex(first[1]).Lock(ctx)
			require.NoError(t, err)
			awaitReplica(t, c.Nodes[0], first[0])
			fail(c.Nodes[0])
			defer c.Nodes[0].Kill() // ends what go-redis waits for, before it is closed
			bounded, cancel := context.WithTimeout(ctx, stage.Guard)
			defer cancel()
			fresh, err := b.Mutex(first[2]).Lock(bounded)
			require.NoError(t, err, "another client is served by the new master")
			require.NoError(t, fresh.Unlock(bounded))
			require.True(t, held.Trusted())
			require.NoError(t, held.Unlock(bounded))
			require.NoError(t, fairHeld.Unlock(bounded))
			for _, name := range first[:2] {
				h, err := b.Mutex(name).TryLock(bounded)
				require.NoError(t, err, "it is free on the new master")
				require.NoError(t, h.Unlock(bounded))
			}
		})
	}
}

// One of three masters answers no more, for longer than the lease of holds on the others. Thousands
// of renewals wait for it meanwhile, because its own holds have longer leases. No hold on the
// others is lost. The log has one line about the master, whatever the number of its holds.
func TestAMasterThatHangsCostsNoHoldOfTheOthers(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "60000")
	ctx := context.Background()
	log := &stage.Logbook{}
	locks := stage.LocksOn(t, c.Client(t), redlatch.WithLease(time.Minute), redlatch.WithRenewInterval(lease/3), redlatch.WithLogger(slog.New(log)))
	hold := func(names []string, options ...redlatch.LockOption) (holds []*lock.Hold) {
		for _, name := range names {
			h, err := locks.Mutex(name, options...).Lock(ctx)
			require.NoError(t, err)
			holds = append(holds, h)
		}
		return holds
	}
	defer runtime.KeepAlive(hold(stage.NamesOfShard(0, 3000))) // the client does not renew a hold that is garbage
	healthy := hold(append(stage.NamesOfShard(1, 100), stage.NamesOfShard(2, 100)...), redlatch.WithLease(lease))
	time.Sleep(lease / 2) // each hold has been renewed, so the client knows the nodes
	c.Nodes[0].Pause()
	defer c.Nodes[0].Resume()
	time.Sleep(2 * lease)
	for _, h := range healthy {
		require.True(t, h.Trusted(), h.Name())
	}
	lines := log.Lines()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "server="+c.Nodes[0].Addr())
}

// awaitReplica waits until the replica has all that the master has. WAIT counts from the last write
// of its own connection.
func awaitReplica(t *testing.T, master *redistest.Server, name string) {
	t.Helper()
	conn := master.Control().Conn()
	defer conn.Close()
	require.NoError(t, conn.Set(t.Context(), "{"+name+"}:last", "", 0).Err())
	acked, err := conn.Wait(t.Context(), 1, stage.Guard).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, acked)
}

// A cluster that is down may still answer reads (cluster-allow-reads-when-down). Then it refuses
// the first write of a script. That is an outage like any other, so Lock waits for its end.
func TestAClusterThatAnswersOnlyReadsIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-allow-reads-when-down", "yes")
	ctx := context.Background()
	require.NoError(t, s.Control().ClusterAddSlotsRange(ctx, 0, 16382).Err()) // all but one: the cluster is down
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	locks := stage.LocksOn(t, rdb)
	name := stage.NamesOfShard(0, 1)[0]
	for kind, lock := range map[string]func(context.Context) error{
		"mutex":      func(ctx context.Context) error { _, err := locks.Mutex(name).Lock(ctx); return err },
		"fair mutex": func(ctx context.Context) error { _, err := locks.FairMutex(name).Lock(ctx); return err },
		"semaphore":  func(ctx context.Context) error { _, err := locks.Semaphore(name, 1).Acquire(ctx, 1); return err },
	} {
		short, cancel := context.WithTimeout(ctx, time.Second)
		require.ErrorIs(t, lock(short), context.DeadlineExceeded, kind)
		cancel()
	}

	granted := make(chan error, 1)
	go func() {
		h, err := locks.Mutex(name).Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		granted <- err
	}()
	require.NoError(t, s.Control().ClusterAddSlots(ctx, 16383).Err())
	require.NoError(t, stage.Within(t, granted, "the cluster is up again"))
}
