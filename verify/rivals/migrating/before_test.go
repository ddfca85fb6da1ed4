package migrating_test

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/rueidis/rueidislock"
)

func waitRedsync(ctx context.Context, rs *redsync.Redsync) error {
	m := rs.NewMutex("orders:42", redsync.WithExpiry(30*time.Second)) // 32 tries
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	defer m.UnlockContext(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func waitRedislock(ctx context.Context, locker *redislock.Client) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lock, err := locker.Obtain(wait, "orders:42", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func waitRueidislock(ctx context.Context, locker rueidislock.Locker) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // for the wait and the work
	defer cancel()
	ctx, release, err := locker.WithContext(ctx, "orders:42")
	if err != nil {
		return err
	}
	defer release()
	return chargeCard(ctx)
}

func tryRedsync(ctx context.Context, rs *redsync.Redsync) error {
	m := rs.NewMutex("orders:42")
	err := m.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer m.UnlockContext(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func tryRedislock(ctx context.Context, locker *redislock.Client) error {
	lock, err := locker.Obtain(ctx, "orders:42", 30*time.Second, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func tryRueidislock(ctx context.Context, locker rueidislock.Locker) error {
	ctx, release, err := locker.TryWithContext(ctx, "orders:42")
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer release()
	return chargeCard(ctx)
}

func renewRedsync(ctx context.Context, rs *redsync.Redsync) error {
	m := rs.NewMutex("orders:42", redsync.WithExpiry(30*time.Second))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	defer m.UnlockContext(context.WithoutCancel(ctx))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			select {
			case <-time.After(10 * time.Second):
				if ok, _ := m.ExtendContext(ctx); !ok {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return chargeCard(ctx)
}

func renewRedislock(ctx context.Context, locker *redislock.Client) error {
	lock, err := locker.Obtain(ctx, "orders:42", 30*time.Second, nil)
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			select {
			case <-time.After(10 * time.Second):
				if lock.Refresh(ctx, 30*time.Second, nil) != nil {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return chargeCard(ctx)
}

func handOverRedsync(ctx context.Context, rs *redsync.Redsync) error {
	m := rs.NewMutex("orders:42")
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	text := m.Value() // for another process

	other := rs.NewMutex("orders:42", redsync.WithValue(text))
	defer other.UnlockContext(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func describeRedislock(ctx context.Context, locker *redislock.Client) error {
	lock, err := locker.Obtain(ctx, "orders:42", 30*time.Second, &redislock.Options{Metadata: "api-7"})
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	return chargeCard(ctx)
}

func takeOverRueidislock(ctx context.Context, locker rueidislock.Locker) error {
	ctx, release, err := locker.ForceWithContext(ctx, "orders:42")
	if err != nil {
		return err
	}
	defer release()
	return chargeCard(ctx)
}
