package main

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/barecalls"
)

// bareCalls send the Redis calls of the redlatch mutex, and do nothing else. Goroutines hand a name
// to each other in order, with one script, as those of the mutex do. So a lock with these calls
// cannot be faster. They do not exclude other processes.
var bareCalls = library{
	name:  "bare calls",
	redis: true,
	sends: []string{"evalsha"},
	open: func(c cell) (locker, error) {
		rdb, closeAll, err := goRedis(c)
		return &bareClient{rdb: rdb, closeAll: closeAll, names: map[string]*bareQueue{}}, err
	},
}

// barePermits send the calls of the redlatch semaphore, for one unit of a name that nobody else
// uses.
var barePermits = library{
	name:  "bare permits",
	redis: true,
	sends: []string{"evalsha"},
	open: func(c cell) (locker, error) {
		rdb, closeAll, err := goRedis(c)
		return &barePermitClient{rdb: rdb, closeAll: closeAll}, err
	},
}

type barePermitClient struct {
	rdb      redis.UniversalClient
	closeAll func()
	limited  sync.Map // the names that have a limit
}

func (b *barePermitClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	keys := []string{"redlatch:permits:{" + name + "}", "redlatch:holders:{" + name + "}", "redlatch:permits-queue:{" + name + "}", "redlatch:permits-alive:{" + name + "}"}
	if _, has := b.limited.LoadOrStore(name, true); !has {
		if err := b.rdb.ZAdd(ctx, keys[0], redis.Z{Score: 1, Member: "limit"}).Err(); err != nil {
			return nil, err
		}
	}
	unlock := func(ctx context.Context) error {
		return barecalls.ReleasePermit.Run(ctx, b.rdb, keys[:3], "client:1").Err()
	}
	return unlock, barecalls.AcquirePermit.Run(ctx, b.rdb, keys, "client:1", time.Now().Add(lease).UnixMilli(), "host").Err()
}

func (b *barePermitClient) close() { b.closeAll() }

type bareClient struct {
	rdb      redis.UniversalClient
	closeAll func()
	ids      atomic.Int64

	mu    sync.Mutex
	names map[string]*bareQueue
}

// bareQueue is a name, and the goroutines that wait for it.
type bareQueue struct {
	lock, fence, queue, channel string

	mu      sync.Mutex
	locked  bool
	waiters []bareWaiter
}

type bareWaiter struct {
	id  string
	got chan error // capacity 1
}

func (b *bareClient) queueOf(name string) *bareQueue {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.names[name]
	if q == nil {
		q = &bareQueue{
			lock: name, fence: "redisson_lock_token:{" + name + "}", queue: "redlatch:queue:{" + name + "}",
			channel: "redisson_lock__channel:{" + name + "}",
		}
		b.names[name] = q
	}
	return q
}

func (b *bareClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	q, id := b.queueOf(name), "client:"+strconv.FormatInt(b.ids.Add(1), 10)
	unlock := func(ctx context.Context) error { return b.unlock(ctx, q, id) }
	if w, waits := q.enter(id); waits {
		select {
		case err := <-w.got:
			return unlock, err
		case <-ctx.Done(): // the end of the cell: nobody measures what follows
			return nil, ctx.Err()
		}
	}
	return unlock, barecalls.Acquire.Run(ctx, b.rdb, []string{q.lock, q.fence, q.queue}, id, lease.Milliseconds(), "host").Err()
}

// enter locks the queue, or waits in it.
func (q *bareQueue) enter(id string) (w bareWaiter, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.locked {
		q.locked = true
		return w, false
	}
	w = bareWaiter{id, make(chan error, 1)}
	q.waiters = append(q.waiters, w)
	return w, true
}

// next returns the first waiter. If nobody waits, it unlocks the queue.
func (q *bareQueue) next() (w bareWaiter, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiters) == 0 {
		q.locked = false
		return w, false
	}
	w, q.waiters = q.waiters[0], q.waiters[1:]
	return w, true
}

func (b *bareClient) unlock(ctx context.Context, q *bareQueue, id string) error {
	w, waits := q.next()
	if !waits {
		return barecalls.Release.Run(ctx, b.rdb, []string{q.lock, q.queue}, id, q.channel).Err()
	}
	err := barecalls.Transfer.Run(ctx, b.rdb, []string{q.lock, q.fence}, id, w.id, lease.Milliseconds()).Err()
	w.got <- err
	runtime.Gosched() // as the mutex does
	return err
}

func (b *bareClient) close() { b.closeAll() }
