package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // calls end with their context
	rdb := redis.NewClient(options)
	defer rdb.Close()

	locks, err := redlatch.New(rdb) // one for the whole program
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		locks.Close(ctx) // releases what is still held
	}()

	return charge(ctx, locks, "42")
}

// charge lets one process at a time charge an order.
func charge(ctx context.Context, locks *redlatch.Client, order string) error {
	fmt.Println("waits for the lock of order", order)
	return locks.Mutex("orders:"+order).Do(ctx, func(ctx context.Context) error {
		hold, _ := redlatch.HoldFromContext(ctx)
		fmt.Println("has the lock, with fence", hold.Fence())
		select {
		case <-time.After(10 * time.Second): // the work
			return save(ctx, locks, order)
		case <-ctx.Done(): // Ctrl-C, or the lock was lost
			return context.Cause(ctx)
		}
	})
}

// save locks the order too, because other functions call it without the lock.
func save(ctx context.Context, locks *redlatch.Client, order string) error {
	return locks.Mutex("orders:"+order).Do(ctx, func(ctx context.Context) error {
		hold, _ := redlatch.HoldFromContext(ctx)
		fmt.Println("saves the order, with fence", hold.Fence())
		return nil
	})
}
