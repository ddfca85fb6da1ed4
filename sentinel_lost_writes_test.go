//go:build topologies

package redlatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: SENTINEL FAILOVER promotes a replica that lacks the last writes, while the
// master still serves clients. The master follows the new one afterwards, and loses these writes
// too.

// heldLock is a lock of any kind, with what this test needs of its hold.
type heldLock struct {
	fence   int64 // 0 if the kind has none
	trusted func() time.Time
	lost    func() <-chan struct{}
	unlock  func(context.Context) error
}

// sentinelKinds acquires a lock of each kind, and says which key has its queue.
var sentinelKinds = map[string]struct {
	lock  func(ctx context.Context, c *redlatch.Client, name string) (heldLock, error)
	queue func(name string) string // empty: none
}{
	"mutex": {func(ctx context.Context, c *redlatch.Client, name string) (heldLock, error) {
		h, err := c.Mutex(name).Lock(ctx)
		if err != nil {
			return heldLock{}, err
		}
		return heldLock{h.Fence(), h.TrustedUntil, h.Lost, h.Unlock}, nil
	}, nil},
	"fair mutex": {func(ctx context.Context, c *redlatch.Client, name string) (heldLock, error) {
		h, err := c.FairMutex(name).Lock(ctx)
		if err != nil {
			return heldLock{}, err
		}
		return heldLock{h.Fence(), h.TrustedUntil, h.Lost, h.Unlock}, nil
	}, func(name string) string { return key.ForMutex(name).Queue }},
	"semaphore": {func(ctx context.Context, c *redlatch.Client, name string) (heldLock, error) {
		p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
		if err != nil {
			return heldLock{}, err
		}
		return heldLock{0, p.TrustedUntil, p.Lost, p.Release}, nil
	}, func(name string) string { return key.ForSemaphore(name).Queue }},
}

// Each kind of lock has a holder and a waiter that the replica knows, and a holder and a waiter
// that it lacks. After the failover, the first holder goes on, and the waiter of the second is
// served. Leases last an hour, so only a renewal can notify the second holder.
func TestASentinelFailoverThatLosesTheLastWrites(t *testing.T) {
	t.Parallel()
	p, bed := newWatched(t)
	ctx := t.Context()
	client := func(options ...redlatch.Option) *redlatch.Client {
		return stage.LocksOn(t, bed.Client(t), append(options, redlatch.WithLease(time.Hour), redlatch.WithRenewInterval(500*time.Millisecond))...)
	}
	holder, waiter := client(), client(redlatch.WithHeartbeat(3*time.Second))
	type line struct {
		kind, name string
		held       heldLock
		next       chan heldLock
	}
	begin := func(suffix string) (lines []line) {
		for kind, k := range sentinelKinds {
			l := line{kind, kind + suffix, heldLock{}, make(chan heldLock, 1)}
			var err error
			l.held, err = k.lock(ctx, holder, l.name)
			require.NoError(t, err)
			go func() {
				if next, err := k.lock(ctx, waiter, l.name); err == nil {
					l.next <- next
				}
			}()
			require.Eventually(t, func() bool {
				if k.queue != nil {
					return p.Master.Control().ZCard(ctx, k.queue(l.name)).Val() == 1
				}
				return listens(t, p.Master, key.ForMutex(l.name).Channel)
			}, stage.Guard, time.Millisecond)
			lines = append(lines, l)
		}
		return lines
	}
	kept := begin(" that the replica has")
	p.Replicated()

	// The replica cannot log in to its master any more, so it gets no further writes. Sentinels may
	// still promote it.
	require.NoError(t, p.Replica.Control().ConfigSet(ctx, "masterauth", "nobody").Err())
	require.NoError(t, p.Master.Control().Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err())
	lost := begin(" that the replica lacks")
	for _, l := range lost {
		require.Zero(t, p.Replica.Control().Exists(ctx, l.name, key.ForSemaphore(l.name).Permits).Val(), "%s: nothing would be lost", l.name)
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: bed.Addrs[0]})
	defer sentinel.Close()
	require.Eventually(t, func() bool { return sentinel.Failover(ctx, bed.Name).Err() == nil }, stage.Guard, 100*time.Millisecond)
	require.Eventually(t, func() bool { return hasRole(t, p.Replica, "master") && hasRole(t, p.Master, "slave") }, stage.Guard, 10*time.Millisecond)

	for _, l := range lost {
		next := stage.Within(t, l.next, l.name+": the waiter is served")
		stage.Within(t, l.held.lost(), l.name+": the holder is notified")
		require.ErrorIs(t, l.held.unlock(ctx), redlatch.ErrLost, l.name)
		if l.held.fence > 0 {
			require.Greater(t, next.fence, l.held.fence, l.name)
		}
		require.False(t, stage.IsClosed(next.lost()), l.name)
		require.NoError(t, next.unlock(ctx), l.name)
	}
	for _, l := range kept {
		for range 2 { // the first may have been sent to the old master
			before := l.held.trusted().Add(time.Millisecond)
			require.Eventually(t, func() bool { return l.held.trusted().After(before) }, stage.Guard, time.Millisecond, l.name+": the holder goes on")
		}
		require.False(t, stage.IsClosed(l.held.lost()), l.name)
		require.Empty(t, l.next, l.name)
		require.NoError(t, l.held.unlock(ctx), l.name)
		next := stage.Within(t, l.next, l.name+": the waiter is served")
		require.NoError(t, next.unlock(ctx), l.name)
	}
}

func hasRole(t *testing.T, s *redistest.Server, role string) bool {
	t.Helper()
	info, err := s.Control().Info(t.Context(), "replication").Result()
	return err == nil && strings.Contains(info, "role:"+role)
}
