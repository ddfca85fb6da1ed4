package redlatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lockerr"
)

// guarded is one kind of primitive, as the tests of migrations use it: one holder at a time.
type guarded struct {
	lock   func(ctx context.Context, c *redlatch.Client, name string) (guardedHold, error)
	keys   func(name string) (lock, queue string)
	queues bool // waiters have places in Redis
}

type guardedHold struct {
	unlock func(ctx context.Context) error
	lost   <-chan struct{}
}

func mutexKeys(name string) (lock, queue string) { k := key.ForMutex(name); return k.Lock, k.Queue }

func holdOf(h *lock.Hold, err error) (guardedHold, error) {
	if err != nil {
		return guardedHold{}, err
	}
	return guardedHold{h.Unlock, h.Lost()}, nil
}

var guardedKinds = map[string]guarded{
	"mutex": {func(ctx context.Context, c *redlatch.Client, name string) (guardedHold, error) {
		return holdOf(c.Mutex(name).Lock(ctx))
	}, mutexKeys, false},
	"fair mutex": {func(ctx context.Context, c *redlatch.Client, name string) (guardedHold, error) {
		return holdOf(c.FairMutex(name).Lock(ctx))
	}, mutexKeys, true},
	"semaphore": {func(ctx context.Context, c *redlatch.Client, name string) (guardedHold, error) {
		p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
		if err != nil {
			return guardedHold{}, err
		}
		return guardedHold{p.Release, p.Lost()}, nil
	}, func(name string) (string, string) { k := key.ForSemaphore(name); return k.Permits, k.Queue }, true},
}

// migratingCluster is a cluster of two masters. Its first node has the slot of the name.
func migratingCluster(t *testing.T) (c *redistest.Cluster, name string) {
	t.Helper()
	c = redistest.StartCluster(t, 2, 0)
	for i := 0; ; i++ {
		if name = fmt.Sprintf("{door%d}", i); key.Slot(name) < 1<<13 {
			return c, name
		}
	}
}

func lockAsync(t *testing.T, kind guarded, c *redlatch.Client, name string) <-chan guardedHold {
	got := make(chan guardedHold, 1)
	go func() {
		if h, err := kind.lock(context.Background(), c, name); assert.NoError(t, err) {
			got <- h
		}
	}()
	return got
}

// A slot migrates and gets stuck, while one has a lock and two wait. An Unlock returns nil, and the lock is
// free. If all keys are on one node, it goes to the waiters in their order meanwhile. Otherwise, and for a
// plain mutex, which is free in between, the waiters get it when the migration is over.
func TestALockOutlastsTheMigrationOfItsSlot(t *testing.T) {
	for kindName, kind := range guardedKinds {
		for _, moved := range []string{"nothing", "all keys", "the lock", "the queue"} {
			t.Run(kindName+", "+moved+" moved", func(t *testing.T) {
				t.Parallel()
				cluster, name := migratingCluster(t)
				lockKey, queueKey := kind.keys(name)
				from := cluster.Nodes[0].Control()
				var clients [3]*redlatch.Client
				for i := range clients {
					clients[i] = locksOn(t, cluster.Client(t), redlatch.WithHeartbeat(3*time.Second))
				}
				held, err := kind.lock(t.Context(), clients[0], name)
				require.NoError(t, err)
				var waits [2]<-chan guardedHold
				for i := range waits {
					waits[i] = lockAsync(t, kind, clients[i+1], name)
					require.Eventually(t, func() bool {
						return !kind.queues || from.ZCard(context.Background(), queueKey).Val() == int64(i+1)
					}, guard, time.Millisecond)
				}
				m := cluster.Migrate(t, key.Slot(name), cluster.Nodes[0], cluster.Nodes[1])
				served := kind.queues
				switch moved {
				case "all keys":
					m.Move(t, from.Keys(t.Context(), "*").Val()...)
				case "the lock":
					m.Move(t, lockKey)
					served = false
				case "the queue":
					m.Move(t, queueKey)
					served = false
				}
				bounded, cancel := context.WithTimeout(t.Context(), guard)
				defer cancel()
				require.NoError(t, held.unlock(bounded))
				if !served {
					m.Finish(t)
				}
				first, second := waits[0], waits[1]
				if !kind.queues { // whoever asks first
					both := make(chan guardedHold)
					for _, w := range waits {
						go func() { both <- within(t, w, "a waiter gets the lock") }()
					}
					first, second = both, both
				}
				require.NoError(t, within(t, first, "the first waiter gets the lock").unlock(bounded))
				require.NoError(t, within(t, second, "the second waiter gets the lock").unlock(bounded))
				fresh := lockAsync(t, kind, clients[0], name)
				if served {
					m.Finish(t)
				}
				require.NoError(t, within(t, fresh, "a new request gets the lock").unlock(bounded))
			})
		}
	}
}

// Holds are renewed while their slot migrates, also where one node has the lock of the one, and the other
// node that of the other.
func TestHoldsAreRenewedWhileTheirSlotMigrates(t *testing.T) {
	for kindName, kind := range guardedKinds {
		t.Run(kindName, func(t *testing.T) {
			t.Parallel()
			const lease = 2 * time.Second
			cluster, name := migratingCluster(t)
			locks := locksOn(t, cluster.Client(t), redlatch.WithLease(lease))
			var holds []guardedHold
			for i := range 6 {
				h, err := kind.lock(t.Context(), locks, fmt.Sprint(name, i))
				require.NoError(t, err)
				holds = append(holds, h)
			}
			m := cluster.Migrate(t, key.Slot(name), cluster.Nodes[0], cluster.Nodes[1])
			for i := range 3 {
				lockKey, _ := kind.keys(fmt.Sprint(name, i))
				m.Move(t, lockKey) // and nothing else, for instance not the descriptions of a semaphore
			}
			time.Sleep(2 * lease)
			for i, h := range holds {
				require.False(t, isClosed(h.lost), i)
				require.NoError(t, h.unlock(t.Context()))
			}
			m.Finish(t)
		})
	}
}

// Slots migrate to and fro, key by key, and get stuck, while clients lock and unlock. No lock has two
// holders, no hold is lost, each Unlock returns nil, and a Lock fails only because its time is over. At the
// end all locks are free.
func TestNoAnswerIsFalseWhileSlotsMigrate(t *testing.T) {
	t.Parallel()
	const names, clients, rounds = 4, 3, 6
	cluster, base := migratingCluster(t)
	var (
		workers      sync.WaitGroup
		stop         atomic.Bool
		calls, waits atomic.Int64
	)
	for kindName, kind := range guardedKinds {
		for n := range names {
			name := fmt.Sprint(base, kindName, n)
			var holders atomic.Int32
			for range clients {
				locks := locksOn(t, cluster.Client(t), redlatch.WithHeartbeat(2*time.Second), redlatch.WithLease(time.Minute))
				workers.Go(func() {
					for !stop.Load() && !t.Failed() {
						calls.Add(1)
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(1000)+20)*time.Millisecond)
						h, err := kind.lock(ctx, locks, name)
						cancel()
						if err != nil {
							waits.Add(1)
							assert.ErrorIs(t, err, context.DeadlineExceeded, name)
							assert.NotErrorIs(t, err, lockerr.ErrRefused, name)
							continue
						}
						assert.EqualValues(t, 1, holders.Add(1), name)
						time.Sleep(rand.N(3 * time.Millisecond))
						assert.False(t, isClosed(h.lost), name)
						holders.Add(-1)
						assert.NoError(t, h.unlock(context.Background()), name)
					}
				})
			}
		}
	}
	slot := key.Slot(base)
	for round := range rounds {
		from, to := cluster.Nodes[round%2], cluster.Nodes[1-round%2]
		m := cluster.Migrate(t, slot, from, to)
		time.Sleep(200 * time.Millisecond)
		for range 40 {
			keys, err := from.Control().ClusterGetKeysInSlot(context.Background(), slot, 100).Result()
			require.NoError(t, err)
			if len(keys) > 0 {
				m.Move(t, keys[rand.IntN(len(keys))])
			}
			time.Sleep(rand.N(20 * time.Millisecond))
		}
		m.Finish(t)
		time.Sleep(100 * time.Millisecond)
	}
	stop.Store(true)
	workers.Wait()
	t.Logf("%d calls, of which %d ended by their deadline", calls.Load(), waits.Load())
	locks := locksOn(t, cluster.Client(t))
	for kindName, kind := range guardedKinds {
		for n := range names {
			ctx, cancel := context.WithTimeout(context.Background(), guard)
			defer cancel()
			h, err := kind.lock(ctx, locks, fmt.Sprint(base, kindName, n))
			require.NoError(t, err)
			require.NoError(t, h.unlock(ctx))
		}
	}
}
