//go:build topologies

package redlatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/internal/test/wrapped"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// The goal of this file: the numbers of holds that one process may have while a cluster is in
// trouble. With -short, these tests are left out. The ordinary suite has the same with fewer holds.

func notShort(t *testing.T, smaller string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("left out: with fewer holds, %s shows this", smaller)
	}
}

// holdAll locks the names, many at a time.
func holdAll(t *testing.T, locks *redlatch.Client, names []string) []*lock.Hold {
	t.Helper()
	holds := make([]*lock.Hold, len(names))
	var all errgroup.Group
	all.SetLimit(128)
	for i, name := range names {
		all.Go(func() (err error) {
			holds[i], err = locks.Mutex(name).Lock(context.Background())
			return err
		})
	}
	require.NoError(t, all.Wait())
	return holds
}

// inRedis counts the holds that a server has.
func inRedis(t *testing.T, s *redistest.Server, holds []*lock.Hold) (n int) {
	t.Helper()
	pipe := s.Control().Pipeline()
	for _, h := range holds {
		pipe.HExists(t.Context(), h.Name(), h.ID())
	}
	cmds, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	for _, cmd := range cmds {
		if cmd.(*redis.BoolCmd).Val() {
			n++
		}
	}
	return n
}

func trusted(holds []*lock.Hold) (n int) {
	for _, h := range holds {
		if h.Trusted() {
			n++
		}
	}
	return n
}

// One of three masters hangs for longer than a lease. Its own holds are lost, and none of the
// others.
func TestAHungMasterCostsNoneOfThousandsOfHoldsOfTheOtherMasters(t *testing.T) {
	notShort(t, "TestAMasterThatHangsCostsNoHoldOfTheOthers")
	const lease = 30 * time.Second
	for _, n := range []int{12_000, 50_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "120000")
			locks := stage.LocksOn(t, c.Client(t), redlatch.WithLease(lease))
			var holds [3][]*lock.Hold
			for shard := range holds {
				holds[shard] = holdAll(t, locks, stage.NamesOfShard(shard, n/3))
			}
			stage.AwaitRenewal(t, holds[2][len(holds[2])-1]) // the client knows the nodes
			c.Nodes[0].Pause()
			time.Sleep(lease + lease/6)
			for shard, holds := range holds {
				t.Logf("master %d: %d of %d holds are trusted", shard, trusted(holds), len(holds))
			}
			require.Zero(t, trusted(holds[0]), "the master hung for longer than a lease")
			for shard := 1; shard < 3; shard++ {
				require.Equal(t, len(holds[shard]), trusted(holds[shard]))
				require.Equal(t, len(holds[shard]), inRedis(t, c.Nodes[shard], holds[shard]))
			}
			c.Nodes[0].Resume()
		})
	}
}

// The client does not see that its server belongs to a cluster: a wrapper hides it, or it is the
// client that redis.NewUniversalClient returns for one address. The holds of all slots last.
func TestHiddenClustersKeepThousandsOfHolds(t *testing.T) {
	notShort(t, "TestWrappedClientsKeepLocksOfAllSlotsOfACluster")
	const each, lease = 1000, 10 * time.Second
	three := redistest.StartCluster(t, 3, 0).Client(t)
	one := stage.ClusterOfOne(t)()
	t.Cleanup(func() { _ = one.Close() })
	var plain *redis.Client
	require.NoError(t, one.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		plain = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{node.Options().Addr}}).(*redis.Client)
		return nil
	}))
	t.Cleanup(func() { _ = plain.Close() })
	for kind, rdb := range map[string]redis.UniversalClient{
		"embedding": wrapped.Embedding{UniversalClient: three},
		"opaque":    wrapped.Opaque{OnProcess: three.Process, OnSubscribe: three.Subscribe},
		"plain":     plain,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			locks := stage.LocksOn(t, rdb, redlatch.WithLease(lease))
			ctx := context.Background()
			type held interface{ Trusted() bool }
			holds := make([]held, 3*each)
			releases := make([]func(context.Context) error, 3*each)
			var all errgroup.Group
			all.SetLimit(64)
			for i := range each {
				name := fmt.Sprintf("%s:%d", redistest.Name(t), i)
				for j, acquire := range []func() (*lock.Hold, error){
					func() (*lock.Hold, error) { return locks.Mutex(name + "m").Lock(ctx) },
					func() (*lock.Hold, error) { return locks.FairMutex(name + "f").Lock(ctx) },
				} {
					all.Go(func() error {
						h, err := acquire()
						if err == nil {
							holds[3*i+j], releases[3*i+j] = h, h.Unlock
						}
						return err
					})
				}
				all.Go(func() error {
					var p *semaphore.Permit
					p, err := locks.Semaphore(name+"s", 1).Acquire(ctx, 1)
					if err == nil {
						holds[3*i+2], releases[3*i+2] = p, p.Release
					}
					return err
				})
			}
			require.NoError(t, all.Wait())
			time.Sleep(10 * lease)
			lost := 0
			for i, h := range holds {
				if !h.Trusted() {
					lost++
				}
				all.Go(func() error { assert.NoError(t, releases[i](ctx)); return nil })
			}
			require.NoError(t, all.Wait())
			t.Logf("%d of %d holds lost", lost, len(holds))
			require.Zero(t, lost)
		})
	}
}
