package redlatch_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// The migration of a slot gets stuck for a while. Locks are released and renewed all the same. They
// are handed on where one node has all keys. The waiters go on in their order when the slot has
// moved.
func TestLocksOutlastAStuckMigration(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	names, slot := namesOfOneSlot(t, 5)
	plain, fair, render, near, far := names[0], names[1], names[2], names[3], names[4]
	ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
	defer cancel()
	sentAgain := &retries{}
	a := stage.LocksOn(t, c.Client(t), redlatch.WithLease(6*time.Second))
	b := stage.LocksOn(t, c.Client(t), redlatch.WithObserver(sentAgain))

	plainHeld, err := a.Mutex(plain).Lock(ctx)
	require.NoError(t, err)
	fairHeld, err := a.FairMutex(fair).Lock(ctx)
	require.NoError(t, err)
	units, err := a.Semaphore(render, 1).Acquire(ctx, 1)
	require.NoError(t, err)
	nearHeld, err := a.Mutex(near).Lock(ctx)
	require.NoError(t, err)
	farHeld, err := a.Mutex(far).Lock(ctx)
	require.NoError(t, err)

	plainWaiter := waitFor(func() (*lock.Hold, error) { return b.Mutex(plain).Lock(ctx) })
	var fairWaiters [3]<-chan *lock.Hold
	var unitWaiters [3]<-chan *semaphore.Permit
	for i := range 3 {
		fairWaiters[i] = waitFor(func() (*lock.Hold, error) { return b.FairMutex(fair).Lock(ctx) })
		unitWaiters[i] = waitFor(func() (*semaphore.Permit, error) { return b.Semaphore(render, 1).Acquire(ctx, 1) })
		require.Eventually(t, func() bool {
			_, n, err := a.FairMutex(fair).Queue(ctx, 0, 1)
			info, infoErr := a.Semaphore(render, 1).Inspect(ctx)
			return err == nil && infoErr == nil && n == i+1 && info.Waiting == i+1
		}, stage.Guard, time.Millisecond)
	}

	m := beginMigration(t, c, slot)
	require.NoError(t, fairHeld.Unlock(ctx))
	first := stage.Within(t, fairWaiters[0], "the lock is handed on while its slot migrates")
	require.Greater(t, first.Fence(), fairHeld.Fence())
	require.NoError(t, units.Release(ctx))
	firstUnits := stage.Within(t, unitWaiters[0], "the unit is handed on while its slot migrates")

	m.move(key.ForMutex(fair).Fence)
	m.move(key.ForSemaphore(render).Holders)
	m.move(key.ForMutex(far).Lock)
	require.NoError(t, plainHeld.Unlock(ctx))
	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, firstUnits.Release(ctx))
	stage.AwaitRenewal(t, nearHeld)
	stage.AwaitRenewal(t, nearHeld) // the first may have been sent before
	stage.AwaitRenewal(t, farHeld)
	sentAgain.await(t, 5)
	short, cancelShort := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancelShort()
	_, err = b.Mutex(near).TryLock(short)
	kind := redlatch.ErrUnavailable
	if errors.Is(err, redlatch.ErrIndeterminate) {
		kind = redlatch.ErrIndeterminate // the deadline has cut off an attempt
	}
	stage.RequireOnly(t, kind, err, "no node has all keys")
	for _, waits := range []<-chan *lock.Hold{plainWaiter, fairWaiters[1], fairWaiters[2]} {
		require.Empty(t, waits)
	}
	require.Empty(t, unitWaiters[1])

	m.end()
	h := stage.Within(t, plainWaiter, "the waiter of the plain mutex goes on")
	require.NotNil(t, h)
	require.NoError(t, h.Unlock(ctx))
	second := stage.Within(t, fairWaiters[1], "the second waiter goes on")
	require.Greater(t, second.Fence(), first.Fence())
	require.Empty(t, fairWaiters[2], "it is behind the second")
	require.NoError(t, second.Unlock(ctx))
	third := stage.Within(t, fairWaiters[2], "the third waiter goes on")
	require.Greater(t, third.Fence(), second.Fence())
	require.NoError(t, third.Unlock(ctx))
	for _, waits := range unitWaiters[1:] {
		p := stage.Within(t, waits, "those who wait for the unit go on")
		require.NotNil(t, p)
		require.NoError(t, p.Release(ctx))
	}
	require.True(t, nearHeld.Trusted())
	require.NoError(t, nearHeld.Unlock(ctx))
	require.NoError(t, farHeld.Unlock(ctx))
}

// splitHandOffs counts the hand-overs to a goroutine of the same client that no node could run.
type splitHandOffs struct{ n atomic.Int64 }

func (h *splitHandOffs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *splitHandOffs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *splitHandOffs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if stage.ScriptOf(cmd) == "mutex/transfer" && err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN") {
			h.n.Add(1)
		}
		return err
	}
}

// waitForHandOff is waitFor for a Lock that waits in its own client. It returns when that waits.
func waitForHandOff(t *testing.T, call func() (*lock.Hold, error)) <-chan *lock.Hold {
	t.Helper()
	got := waitFor(call)
	stacks := make([]byte, 4<<20)
	require.Eventually(t, func() bool {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, ").awaitHandoff(") && strings.Contains(stack, t.Name()) {
				return true
			}
		}
		return false
	}, stage.Guard, time.Millisecond, "a goroutine waits for the lock of its client")
	return got
}

// A client would hand its plain mutex to another of its goroutines, but the lock and its fence are
// on two nodes. Unlock frees the lock instead, at once. The goroutine gets it when the slot has
// moved.
func TestAHandOffOfASplitLockFreesIt(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	names, slot := namesOfOneSlot(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
	defer cancel()
	rdb, refused := c.Client(t), &splitHandOffs{}
	rdb.AddHook(refused)
	m := stage.LocksOn(t, rdb, redlatch.WithLocalHandoffTime(time.Hour)).Mutex(names[0])
	h, err := m.Lock(ctx)
	require.NoError(t, err)
	waiter := waitForHandOff(t, func() (*lock.Hold, error) { return m.Lock(ctx) })

	migrates := beginMigration(t, c, slot)
	migrates.move(key.ForMutex(names[0]).Lock)
	require.NoError(t, h.Unlock(ctx))
	require.EqualValues(t, 1, refused.n.Load(), "a hand-over was tried, and once only")
	for _, node := range c.Nodes {
		keys, err := node.Control().ClusterGetKeysInSlot(t.Context(), slot, 10).Result()
		require.NoError(t, err)
		require.NotContains(t, keys, key.ForMutex(names[0]).Lock, "the lock is free")
	}
	require.Empty(t, waiter, "no node has all keys of a lock")
	migrates.end()
	next := stage.Within(t, waiter, "the other goroutine goes on")
	require.NotNil(t, next)
	require.Greater(t, next.Fence(), h.Fence())
	require.NoError(t, next.Unlock(ctx))
}

// Many use the locks of a slot while it migrates, key by key. No call gives a false answer, and all
// end well when the slot has moved.
func TestManyUseTheLocksOfAMigratingSlot(t *testing.T) {
	t.Parallel()
	const limit, each = 2, 5
	c := redistest.StartCluster(t, 2, 0)
	names, slot := namesOfOneSlot(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
	defer cancel()
	sentAgain := &retries{}
	var stop atomic.Bool
	var workers sync.WaitGroup
	var counts []*atomic.Int64
	var inside [3]atomic.Int64
	var fences [3]atomic.Int64
	use := func(kind int, acquire func(context.Context) (release func(context.Context) error, fence int64, err error)) {
		count := &atomic.Int64{}
		counts = append(counts, count)
		workers.Go(func() {
			for !stop.Load() {
				release, fence, err := acquire(ctx)
				if !assert.NoError(t, err) {
					return
				}
				n := inside[kind].Add(1)
				if kind < 2 {
					assert.EqualValues(t, 1, n, "holders at once")
					assert.Greater(t, fence, fences[kind].Swap(fence))
				}
				assert.LessOrEqual(t, n, int64(limit))
				inside[kind].Add(-1)
				if !assert.NoError(t, release(ctx)) {
					return
				}
				count.Add(1)
			}
		})
	}
	for range 2 {
		locks := stage.LocksOn(t, c.Client(t), redlatch.WithObserver(sentAgain))
		for range 3 {
			for kind, mutex := range []interface {
				Lock(context.Context) (*lock.Hold, error)
			}{locks.Mutex(names[0]), locks.FairMutex(names[1])} {
				use(kind, func(ctx context.Context) (func(context.Context) error, int64, error) {
					h, err := mutex.Lock(ctx)
					if err != nil {
						return nil, 0, err
					}
					return h.Unlock, h.Fence(), nil
				})
			}
			use(2, func(ctx context.Context) (func(context.Context) error, int64, error) {
				p, err := locks.Semaphore(names[2], limit).Acquire(ctx, 1)
				if err != nil {
					return nil, 0, err
				}
				return p.Release, 0, nil
			})
		}
		workers.Go(func() { // some do not wait
			for !stop.Load() {
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				h, err := locks.FairMutex(names[1]).TryLock(short)
				cancel()
				if err == nil {
					assert.NoError(t, h.Unlock(ctx))
				} else if !errors.Is(err, redlatch.ErrNotAcquired) {
					assert.ErrorIs(t, err, redlatch.ErrUnavailable)
				}
			}
		})
	}
	defer func() { stop.Store(true); cancel(); workers.Wait() }()
	awaitAll := func(what string) {
		t.Helper()
		var goals []int64
		for _, c := range counts {
			goals = append(goals, c.Load()+each)
		}
		for i, c := range counts {
			require.Eventually(t, func() bool { return c.Load() >= goals[i] || t.Failed() }, stage.Guard, time.Millisecond, what)
		}
	}
	awaitAll("all use the locks")
	m := beginMigration(t, c, slot)
	for range 10 {
		m.moveOne()
		sentAgain.await(t, 5)
	}
	m.end()
	awaitAll("all use the locks again")
	stop.Store(true)
	workers.Wait()
}

// With its defaults, Redisson publishes only to sharded channels of a cluster. Its release wakes a
// waiter.
func TestAWaiterIsNotifiedOnShardedChannels(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	node := c.Nodes[0]
	if strings.HasPrefix(node.Version(), "6.") {
		t.Skip("left out: Redis before 7 has no sharded channels")
	}
	waiter := waitsForRedisson(t, c, "door", node)
	require.NoError(t, node.Control().Del(t.Context(), "door").Err())
	require.NoError(t, node.Control().SPublish(t.Context(), key.ForMutex("door").Channel, "0").Err())
	h := stage.Within(t, waiter, "the message wakes the waiter")
	require.NotNil(t, h)
	require.NoError(t, h.Unlock(t.Context()))
}
