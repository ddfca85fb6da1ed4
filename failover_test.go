package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// NewPair starts a master and a replica.

// Lead makes s the master that new connections reach.

// Locks makes a client that follows the master.

// The replica has the lock. The holder does not notice the failover, and the new master wakes up a
// waiter.
func TestLockSurvivesAFailoverThatKeepsIt(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	name := redistest.Name(t)
	h := stage.MustLock(t, t.Context(), p.Locks(redlatch.WithLease(20*time.Second), redlatch.WithRenewInterval(200*time.Millisecond)).Mutex(name))
	waiter := p.Locks(redlatch.WithPollInterval(time.Second)).Mutex(name)
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Lock(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	p.Replicated()
	p.FailOver()
	stage.AwaitRenewal(t, h)
	stage.AwaitRenewal(t, h)
	stage.StillHeld(t, h)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, stage.Within(t, got, "the waiter gets the lock of the new master"))
}

// The replica lacks the lock, so it is free on the new master. The next renewal notifies the former
// holder. The new holder has a larger fence.
func TestFailoverThatForgetsALockIsNotified(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	name := redistest.Name(t)
	p.Replica.Pause()
	require.NoError(t, p.Master.Control().Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err()) // or the replica gets the write later
	h := stage.MustLock(t, t.Context(), p.Locks(redlatch.WithLease(20*time.Second), redlatch.WithRenewInterval(200*time.Millisecond)).Mutex(name))
	p.Master.Kill()
	p.Replica.Resume()
	p.FailOver()

	next := stage.MustLock(t, t.Context(), p.Locks().Mutex(name))
	require.Greater(t, next.Fence(), h.Fence())
	stage.Within(t, h.Lost(), "the holder is notified")
	require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
	stage.StillHeld(t, next)
	require.NoError(t, next.Unlock(t.Context()))
}

// The clients use a replica that lacks the lock, and that nobody promotes. It does not know that
// the lock is gone, so no hold ends. On the master, the hold goes on.
func TestReplicaThatLacksALockEndsNoHold(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	name := redistest.Name(t)
	replica := p.Replica.Control()
	require.NoError(t, replica.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err()) // no server there: no change
	m := p.Locks(redlatch.WithLease(time.Minute), redlatch.WithRenewInterval(100*time.Millisecond)).Mutex(name)
	outer := stage.MustLock(t, t.Context(), m)
	inner := stage.MustLock(t, outer.Context(), m)
	before := evals(t, replica)
	p.Move(p.Master, p.Replica)

	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(outer.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	require.Eventually(t, func() bool { return evals(t, replica) > before+3 }, stage.Guard, time.Millisecond, "renewals reach the replica")
	stage.StillHeld(t, outer)
	_, reentry := m.Lock(soon())
	for what, err := range map[string]error{"re-entry": reentry, "inner": inner.Unlock(soon()), "outer": outer.Unlock(soon())} {
		require.Error(t, err, what)
		require.NotErrorIs(t, err, redlatch.ErrLost, what)
	}
	notLost(t, outer)

	p.Move(p.Replica, p.Master)
	require.NoError(t, outer.Unlock(t.Context()))
	notLost(t, outer)
	require.Zero(t, p.Master.Control().Exists(t.Context(), name).Val())
}

// An operator uses a replica that lacks locks, waiters and permits. The replica does not know that
// nobody has them, so the operator gets an error. On the master, the same calls end them.
func TestAnOperatorOnAReplicaIsNotAnsweredNobody(t *testing.T) {
	t.Parallel()
	p := stage.NewPair(t)
	name := redistest.Name(t)
	require.NoError(t, p.Replica.Control().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err()) // no server there: no change
	type endKey struct{}                                                                         // of the function that ends the call
	c, operator := p.Locks(), p.Locks(redlatch.WithObserver(event.Func(func(ctx context.Context, e event.Event) {
		if end, ok := ctx.Value(endKey{}).(context.CancelFunc); ok && e.Kind == event.Retried && redis.HasErrorPrefix(e.Err, "READONLY") {
			end()
		}
	})))
	held, queued, permits := c.Mutex(name+":plain"), c.FairMutex(name+":fair"), c.Semaphore(name, 1)
	plain := stage.MustLock(t, t.Context(), held)
	first, err := queued.Lock(t.Context())
	require.NoError(t, err)
	permit, err := permits.Acquire(t.Context(), 1)
	require.NoError(t, err)
	ended := make(chan error, 2)
	go func() { _, err := queued.Lock(t.Context()); ended <- err }()
	go func() { _, err := permits.Acquire(t.Context(), 1); ended <- err }()
	waiter := func(l stage.WaitingLine) (acquisition string) {
		require.Eventually(t, func() bool {
			seen, _, err := l.Queue(t.Context(), 0, 1)
			require.NoError(t, err)
			if len(seen) > 0 {
				acquisition = seen[0].ID
			}
			return len(seen) > 0
		}, stage.Guard, time.Millisecond)
		return acquisition
	}
	waiters := []string{waiter(queued), waiter(permits)}
	calls := map[string]func(ctx context.Context) (any, error){
		"plain": func(ctx context.Context) (any, error) { return operator.Mutex(name+":plain").ForceRelease(ctx, "") },
		"waiter": func(ctx context.Context) (any, error) {
			return operator.FairMutex(name+":fair").RemoveWaiter(ctx, waiters[0])
		},
		"permit waiter": func(ctx context.Context) (any, error) {
			return operator.Semaphore(name, 1).RemoveWaiter(ctx, waiters[1])
		},
		"fair": func(ctx context.Context) (any, error) { return operator.FairMutex(name+":fair").ForceRelease(ctx, "") },
		"permit": func(ctx context.Context) (any, error) {
			return operator.Semaphore(name, 1).ForceRelease(ctx, permit.ID())
		},
	}
	p.Move(p.Master, p.Replica)
	for what, call := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		got, err := call(context.WithValue(ctx, endKey{}, cancel))
		cancel()
		// The context may end while the last attempt is on its way. Nobody knows then what it did.
		require.Condition(t, func() bool {
			return errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrIndeterminate)
		}, "%s: %v, %v", what, got, err)
		require.ErrorContains(t, err, "READONLY", what)
	}
	p.Move(p.Replica, p.Master)
	for _, what := range []struct {
		call string
		want any
	}{{"waiter", true}, {"permit waiter", true}, {"plain", plain.ID()}, {"fair", first.ID()}, {"permit", 1}} {
		got, err := calls[what.call](t.Context())
		require.NoError(t, err, what.call)
		require.Equal(t, what.want, got, what.call)
	}
	for range 2 {
		require.ErrorIs(t, stage.Within(t, ended, "the waiter is notified"), redlatch.ErrRemoved)
	}
}

func notLost(t *testing.T, h *lock.Hold) {
	t.Helper()
	select {
	case <-h.Lost():
		require.Fail(t, "a loss that never was")
	default:
	}
}

// evals is the number of scripts that clients sent to a server.
func evals(t *testing.T, rdb *redis.Client) (n int64) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, cmd := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		var calls int64
		_, _ = fmt.Sscanf(info["Commandstats"][cmd], "calls=%d", &calls) // matches nothing if there was none
		n += calls
	}
	return n
}

// line has waiters of separate clients behind a holder, on servers that sentinels watch.
type line struct {
	*stage.Pair
	name   string
	bed    *redistest.Watched
	holder *lock.Hold
	mu     sync.Mutex
	served []int        // in order
	again  map[int]bool // waiters that were notified that they queued again
	failed chan error
}

func newLine(t *testing.T, waiters int) *line {
	t.Helper()
	p, bed := newWatched(t)
	l := &line{Pair: p, bed: bed, name: redistest.Name(t), again: map[int]bool{}, failed: make(chan error, waiters)}
	var err error
	l.holder, err = l.fair().Lock(t.Context())
	require.NoError(t, err)
	for i := range waiters {
		m := l.fair(redlatch.WithWaitCallback(func(w lock.Waiting) { l.reported(i, w) }))
		go func() {
			h, err := m.Lock(t.Context())
			if err == nil {
				l.got(i)
				err = h.Unlock(t.Context())
			}
			l.failed <- err
		}()
		l.queued(l.Master, i+1)
	}
	l.Replicated()
	return l
}

func (l *line) fair(options ...redlatch.LockOption) *fair.Mutex {
	return stage.LocksOn(l, l.bed.Client(l), redlatch.WithLease(time.Minute), redlatch.WithHeartbeat(10*time.Second)).FairMutex(l.name, options...)
}

func (l *line) reported(i int, w lock.Waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again[i] = l.again[i] || w.Requeued
}

func (l *line) got(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = append(l.served, i)
}

func (l *line) queued(s *redistest.Server, n int) {
	l.Helper()
	require.Eventually(l, func() bool {
		return s.Control().ZCard(l.Context(), key.ForMutex(l.name).Queue).Val() == int64(n)
	}, stage.Guard, time.Millisecond)
}

// endsInOrder returns when all have had the lock.
func (l *line) endsInOrder() {
	l.Helper()
	var order []int
	for i := range cap(l.failed) {
		require.NoError(l, stage.Within(l, l.failed, "everybody is served"))
		order = append(order, i)
	}
	require.Equal(l, order, l.served)
}

// The replica has the queue. The new master serves it in order, and nobody notices the failover.
func TestAQueueSurvivesAFailoverThatKeepsIt(t *testing.T) {
	t.Parallel()
	l := newLine(t, 5)
	l.Master.Kill()
	require.NoError(t, l.holder.Unlock(t.Context())) // as soon as there is a master
	l.endsInOrder()
	for i, again := range l.again {
		require.False(t, again, "%d", i)
	}
}

// The replica lacks the lock and the queue, and another client gets the lock first. Everybody
// queues again behind it, with the old ticket, and is notified of that.
func TestAQueueThatAFailoverForgetsComesBackInOrder(t *testing.T) {
	t.Parallel()
	l := newLine(t, 5)
	replica := l.Replica.Control()
	require.NoError(t, replica.ConfigSet(t.Context(), "replica-read-only", "no").Err())
	require.NoError(t, replica.FlushAll(t.Context()).Err())
	const somebody = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:1"
	require.NoError(t, replica.HSet(t.Context(), l.name, somebody, 1).Err())
	l.Master.Kill()
	stage.Within(t, l.holder.Lost(), "the holder is notified")
	require.ErrorIs(t, l.holder.Unlock(t.Context()), redlatch.ErrLost)
	l.queued(l.Replica, 5)
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		requeued := 0
		for _, again := range l.again {
			if again {
				requeued++
			}
		}
		return requeued == 5
	}, stage.Guard, time.Millisecond, "all are notified")
	victim, err := l.fair().ForceRelease(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, somebody, victim)
	l.endsInOrder()
}
