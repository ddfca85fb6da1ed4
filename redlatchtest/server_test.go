package redlatchtest_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

const lease = 30 * time.Second // the default

func TestTwoClientsExcludeEachOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		other := s.NewClient()
		h := k.mustLock(t, s.Client)
		k.requireTaken(t, other)
		requireHeld(t, h)
		k.requireFree(t, other)
	})
}

// miniredis alone keeps a key for ever, until a test moves its clock.
func TestALeaseEndsByItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		const short = 300 * time.Millisecond
		h := k.mustLock(t, s.Client, redlatch.WithLease(short), redlatch.WithoutRenewal())
		start := time.Now()
		next, err := k.lock(soon(t), s.NewClient())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), short-short/3, "it was held")
		requireLost(t, h)
		requireHeld(t, next)
	})
}

func TestInABubbleALiveHolderKeepsItsLock(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := redlatchtest.New(t)
			h := k.mustLock(t, s.Client)
			time.Sleep(time.Hour)
			requireHeld(t, h)
		})
	}
}

func TestOptionsAreThoseOfEveryClient(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t, redlatch.WithPrefix("shop:"), redlatch.WithDescription("the test"))
		require.Equal(t, "shop:door", s.Client.Mutex("door").Name())
		require.Equal(t, "shop:door", s.NewClient().Mutex("door").Name())
		require.Equal(t, "till:door", s.NewClient(redlatch.WithPrefix("till:")).Mutex("door").Name())

		release := s.HoldElsewhere("door")
		info, err := s.Client.Mutex("door").Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "shop:door", info.Name)
		require.Equal(t, "another process", info.Description)
		release()
		hold, err := s.Client.Mutex("door").Lock(t.Context())
		require.NoError(t, err)
		s.Lose("door")
		require.ErrorIs(t, context.Cause(hold.Context()), redlatch.ErrLost)

		s.AcquireElsewhere("door", 1, 1)
		s.Lose("door")
		permit, err := s.Client.Semaphore("door", 1).TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		s.Advance(2 * lease)
		require.ErrorIs(t, context.Cause(permit.Context()), redlatch.ErrLost)
	})
}

func TestAServerThatIsDown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		other := s.NewClient()
		for range 2 {
			k.requireFree(t, other) // connected, and then cut off
			s.Down()
			for _, c := range []*redlatch.Client{s.Client, other} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := k.lock(ctx, c)
				cancel()
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.Error(t, s.Redis.Ping(t.Context()).Err())
			s.Up()
			h, err := k.lock(soon(t), s.Client)
			require.NoError(t, err)
			requireHeld(t, h)
		}
	})
}

func TestAnOutageEndsTheLocksOfTheProgramOnly(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		synctest.Test(t, func(t *testing.T) {
			s := redlatchtest.New(t)
			h := k.mustLock(t, s.Client)
			s.Down()
			time.Sleep(lease)
			requireLost(t, h)
			s.Up()
			k.requireFree(t, s.Client)

			release := k.elsewhere(s)
			s.Down()
			time.Sleep(10 * lease)
			s.Up()
			k.requireTaken(t, s.Client)
			release()
			k.requireFree(t, s.Client)
		})
	}
}

// go-redis stops to dial after as many failures as its pool is large, and starts a goroutine that
// outlives the test.
func TestAnOutageMayRefuseAnyNumberOfCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		calls := s.Redis.Options().PoolSize / s.Redis.Options().MaxRetries // more attempts than the pool is large
		s.Down()
		for range calls {
			require.ErrorIs(t, s.Redis.Ping(t.Context()).Err(), syscall.ECONNREFUSED)
			_, err := s.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		_, err := s.Client.Mutex("door").TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, redlatch.ErrIndeterminate)

		s.Up()
		back := time.Now()
		require.NoError(t, s.Redis.Ping(t.Context()).Err())
		requireHeld(t, kinds[0].mustLock(t, s.Client))
		require.Equal(t, back, time.Now(), "a call connects again by itself")

		s.Down() // the goroutine would be there at the end of the test
		for range calls {
			require.Error(t, s.Redis.Ping(t.Context()).Err())
		}
	})
}

// Without a deadline, Lock waits for the server to come back.
func TestAWaiterOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, k kind) {
		s := redlatchtest.New(t)
		s.Down()
		got := make(chan error, 1)
		go func() {
			h, err := k.lock(soon(t), s.Client)
			if err == nil {
				err = h.release(t.Context())
			}
			got <- err
		}()
		s.Up()
		require.NoError(t, <-got)
	})
}

func TestRedisHasWhatTheProgramKeepsBesideItsLocks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		_, err := s.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
			tx.Set(t.Context(), "stock", 7, time.Hour)
			tx.Decr(t.Context(), "stock")
			return nil
		})
		require.NoError(t, err)
		stock, err := s.Redis.Get(t.Context(), "stock").Int()
		require.NoError(t, err)
		require.Equal(t, 6, stock)
		s.Advance(time.Hour)
		require.ErrorIs(t, s.Redis.Get(t.Context(), "stock").Err(), redis.Nil)
	})
}

func TestAProgramMayCloseEverythingItself(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T) {
		s := redlatchtest.New(t)
		s.NewClient() // which it does not
		_, err := s.Client.Mutex("door").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Client.Close(t.Context()))
		require.NoError(t, s.Redis.Close())
	})
}
