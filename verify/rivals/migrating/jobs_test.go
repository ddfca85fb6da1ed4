package migrating_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// everything is one server, with a client of each library.
type everything struct {
	rdb     *redis.Client
	locks   *redlatch.Client
	rs      *redsync.Redsync
	locker  *redislock.Client
	rueidis rueidislock.Locker
}

func open(t *testing.T) *everything {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t)
	locks, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locks.Close(context.Background())) })
	other, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}}, KeyMajority: 1,
	})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return &everything{rdb, locks, redsync.New(goredis.NewPool(rdb)), redislock.New(rdb), other}
}

var errBusy = errors.New("somebody else charges the order")

var charges atomic.Int32

// whileCharging is called once while the card is charged.
var whileCharging atomic.Pointer[func()]

// chargeCard is the work under the lock.
func chargeCard(ctx context.Context) error {
	charges.Add(1)
	if call := whileCharging.Swap(nil); call != nil {
		(*call)()
	}
	return ctx.Err()
}

type job struct {
	name string
	run  func(ctx context.Context) error
	want error // while somebody else has the lock
}

// Each job of the page does its work if the lock is free, and not while somebody else has it.
func TestTheJobsOfThePage(t *testing.T) {
	c := open(t)
	prefixed, err := redlatch.New(c.rdb, redlatch.WithPrefix("locks:"))
	require.NoError(t, err)
	defer prefixed.Close(t.Context())

	c.test(t, c.redsyncHolds, []job{
		{"wait with redsync", func(ctx context.Context) error { return waitRedsync(ctx, c.rs) }, redsync.ErrFailed},
		{"try with redsync", func(ctx context.Context) error { return tryRedsync(ctx, c.rs) }, errBusy},
		{"renew with redsync", func(ctx context.Context) error { return renewRedsync(ctx, c.rs) }, redsync.ErrFailed},
		{"hand over with redsync", func(ctx context.Context) error { return handOverRedsync(ctx, c.rs) }, redsync.ErrFailed},
		{"roll over from redsync", func(ctx context.Context) error { return rollOver(ctx, prefixed, c.rs) }, redsync.ErrFailed},
	})
	c.test(t, c.redislockHolds, []job{
		{"wait with redislock", func(ctx context.Context) error { return waitRedislock(ctx, c.locker) }, context.DeadlineExceeded},
		{"try with redislock", func(ctx context.Context) error { return tryRedislock(ctx, c.locker) }, errBusy},
		{"renew with redislock", func(ctx context.Context) error { return renewRedislock(ctx, c.locker) }, redislock.ErrNotObtained},
		{"describe with redislock", func(ctx context.Context) error { return describeRedislock(ctx, c.locker) }, redislock.ErrNotObtained},
	})
	c.test(t, c.rueidisHolds, []job{
		{"wait with rueidislock", func(ctx context.Context) error { return waitRueidislock(ctx, c.rueidis) }, context.DeadlineExceeded},
		{"try with rueidislock", func(ctx context.Context) error { return tryRueidislock(ctx, c.rueidis) }, errBusy},
	})
	c.test(t, holds(c.locks), []job{
		{"wait", func(ctx context.Context) error { return waitRedlatch(ctx, c.locks) }, redlatch.ErrNotAcquired},
		{"try", func(ctx context.Context) error { return tryRedlatch(ctx, c.locks) }, errBusy},
		{"renew", func(ctx context.Context) error { return renewRedlatch(ctx, c.locks) }, redlatch.ErrNotAcquired},
		{"hand over", func(ctx context.Context) error { return handOverRedlatch(ctx, c.locks) }, redlatch.ErrNotAcquired},
		{"describe", func(ctx context.Context) error { return describeRedlatch(ctx, c.rdb) }, redlatch.ErrNotAcquired},
	})
	c.test(t, holds(prefixed), []job{
		{"roll over to redlatch", func(ctx context.Context) error { return rollOver(ctx, prefixed, c.rs) }, redlatch.ErrNotAcquired},
	})
}

// A take-over does its work although somebody else has the lock.
func TestTheTakeOversOfThePage(t *testing.T) {
	c := open(t)
	other, err := redlatch.New(c.rdb)
	require.NoError(t, err)
	_, err = other.Mutex("orders:42").Lock(t.Context())
	require.NoError(t, err)
	c.rueidisHolds(t)
	charges.Store(0)
	require.NoError(t, takeOverRueidislock(t.Context(), c.rueidis))
	require.NoError(t, takeOverRedlatch(t.Context(), c.locks))
	require.EqualValues(t, 2, charges.Load())
	require.NoError(t, other.Close(t.Context()), "the old holder has lost it")
}

func (c *everything) test(t *testing.T, hold func(*testing.T) (release func()), jobs []job) {
	for _, job := range jobs {
		t.Run(job.name, func(t *testing.T) {
			charges.Store(0)
			require.NoError(t, job.run(t.Context()))
			require.EqualValues(t, 1, charges.Load(), "free")
			keys, err := c.rdb.Keys(t.Context(), "*orders:42").Result()
			require.NoError(t, err)
			require.Empty(t, keys, "released")

			release := hold(t)
			defer release()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, job.run(ctx), job.want)
			require.EqualValues(t, 1, charges.Load(), "held")
		})
	}
}

func (c *everything) redsyncHolds(t *testing.T) (release func()) {
	m := c.rs.NewMutex("orders:42")
	require.NoError(t, m.Lock())
	return func() {
		_, err := m.Unlock()
		require.NoError(t, err)
	}
}

func (c *everything) redislockHolds(t *testing.T) (release func()) {
	l, err := c.locker.Obtain(t.Context(), "orders:42", time.Minute, nil)
	require.NoError(t, err)
	return func() { require.NoError(t, l.Release(context.Background())) }
}

func (c *everything) rueidisHolds(t *testing.T) (release func()) {
	_, cancel, err := c.rueidis.WithContext(t.Context(), "orders:42")
	require.NoError(t, err)
	return cancel
}

func holds(locks *redlatch.Client) func(t *testing.T) (release func()) {
	return func(t *testing.T) (release func()) {
		h, err := locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		return func() { require.NoError(t, h.Unlock(context.Background())) }
	}
}
