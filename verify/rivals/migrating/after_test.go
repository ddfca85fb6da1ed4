package migrating_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

func waitRedlatch(ctx context.Context, locks *redlatch.Client) error {
	mu := locks.Mutex("orders:42", redlatch.WithWaitTimeout(5*time.Second))
	return mu.Do(ctx, chargeCard)
}

func tryRedlatch(ctx context.Context, locks *redlatch.Client) error {
	err := locks.Mutex("orders:42").TryDo(ctx, chargeCard)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	}
	return err
}

func renewRedlatch(ctx context.Context, locks *redlatch.Client) error {
	return locks.Mutex("orders:42").Do(ctx, chargeCard) // the client renews until chargeCard returns
}

func handOverRedlatch(ctx context.Context, locks *redlatch.Client) error {
	mu := locks.Mutex("orders:42")
	hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	text, err := hold.Export(ctx, time.Minute) // for another process, within a minute
	if err != nil {
		hold.Unlock(ctx)
		return err
	}

	other, err := mu.Attach(ctx, text) // renewed again, with a larger fence
	if err != nil {
		return err
	}
	defer other.Unlock(ctx)
	return chargeCard(other.Context())
}

func describeRedlatch(ctx context.Context, rdb redis.UniversalClient) error {
	locks, err := redlatch.New(rdb, redlatch.WithDescription("api-7"))
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	err = locks.Mutex("orders:42").Do(ctx, chargeCard)
	var busy *redlatch.NotAcquiredError
	if errors.As(err, &busy) {
		slog.Info("order is busy", "holder", busy.Description, "for", busy.Remaining)
	}
	return err
}

func takeOverRedlatch(ctx context.Context, locks *redlatch.Client) error {
	mu := locks.Mutex("orders:42")
	if _, err := mu.ForceRelease(ctx, ""); err != nil {
		return err
	}
	return mu.Do(ctx, chargeCard) // a waiter may come first
}

// rollOver holds both locks. The prefix of locks makes their keys differ.
func rollOver(ctx context.Context, locks *redlatch.Client, rs *redsync.Redsync) error {
	return locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		return waitRedsync(ctx, rs) // the code of before, unchanged
	})
}
