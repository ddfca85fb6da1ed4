package rivals_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// https://github.com/bsm/redislock#examples and https://pkg.go.dev/github.com/bsm/redislock:
// Obtain, Refresh, Release, and the example Client.Obtain (Retry), which retries each 100 ms.
var redislocks = library{
	name:   "bsm/redislock",
	module: "github.com/bsm/redislock",
	open: func(_ testing.TB, addr string, size scale) client {
		rdb := connect(addr, size)
		return &redislockClient{rdb: rdb, locker: redislock.New(rdb), size: size, loops: newLoops()}
	},
	key:      func(name string) string { return name },
	meaning:  redislockMeaning,
	releases: true,
}

type redislockClient struct {
	rdb    *redis.Client
	locker *redislock.Client
	size   scale
	loops  loops
}

func (c *redislockClient) lock(name string) workload.Lock { return redislockLock{c, name} }

func (c *redislockClient) close() {
	_ = c.rdb.Close()
	c.loops.end()
}

type redislockLock struct {
	*redislockClient
	name string
}

func (l redislockLock) Lock(ctx context.Context) (workload.Hold, error) {
	return l.obtain(ctx, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
}

func (l redislockLock) TryLock(ctx context.Context) (workload.Hold, error) { return l.obtain(ctx, nil) }

func (l redislockLock) obtain(ctx context.Context, opt *redislock.Options) (workload.Hold, error) {
	lock, err := l.locker.Obtain(ctx, l.name, l.size.lease, opt)
	if err != nil {
		return nil, err
	}
	h := &redislockHold{lock: lock}
	h.until = func() time.Time { return time.Now().Add(forEver) }
	h.gone = func(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }
	h.extend = func(ctx context.Context) error { return lock.Refresh(ctx, l.size.lease, nil) }
	h.start(l.loops, l.size.lease/3)
	return h, nil
}

type redislockHold struct {
	byHand
	lock *redislock.Lock
}

func (h *redislockHold) ID() string { return h.lock.Token() }

func (h *redislockHold) Unlock(ctx context.Context) error {
	h.stop()
	return h.lock.Release(ctx)
}

func redislockMeaning(_ history.Kind, err error) (history.Outcome, bool) {
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return history.Refused, false
	case errors.Is(err, redislock.ErrLockNotHeld):
		return history.Lost, false
	}
	return history.Unknown, false
}
