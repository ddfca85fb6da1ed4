package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// exampleClient gives the examples a server of their own.
func exampleClient() (locks *redlatch.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locks, err = redlatch.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close(context.Background())
		_ = rdb.Close()
		server.Close()
	}
}

// Of many processes that start a job at the same time, one runs it. The others do not wait.
func ExampleMutex_TryDo() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	cleanUp := func(context.Context) error { fmt.Println("cleans up"); return nil }

	hold, err := locks.Mutex("clean-up").Lock(ctx) // stands for another process
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Mutex("clean-up").TryDo(ctx, cleanUp)
	fmt.Println("somebody else does it:", errors.Is(err, redlatch.ErrNotAcquired))

	if err := hold.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(locks.Mutex("clean-up").TryDo(ctx, cleanUp))
	// Output:
	// somebody else does it: true
	// cleans up
	// <nil>
}

func ExampleMutex_Do() {
	locks, stop := exampleClient()
	defer stop()

	mu := locks.Mutex("orders:42")
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		return mu.Do(ctx, func(context.Context) error { // with the context of the hold
			fmt.Println("has the lock twice")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// has the lock twice
	// <nil>
}

// The deadline bounds the wait, and not the work.
func ExampleMutex_Lock() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	lockWithin := func(d time.Duration) (*redlatch.Hold, error) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return locks.Mutex("orders:42").Lock(ctx)
	}
	hold, err := lockWithin(5 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	fmt.Println("trusted:", hold.Trusted())

	_, err = lockWithin(100 * time.Millisecond) // another owner
	fmt.Println("not acquired:", errors.Is(err, redlatch.ErrNotAcquired))
	fmt.Println("the deadline ended the wait:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// trusted: true
	// not acquired: true
	// the deadline ended the wait: true
}

func ExampleMutex_TryLock() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	hold, err := locks.Mutex("orders:42").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	_, err = locks.Mutex("orders:42").TryLock(ctx)
	var busy *redlatch.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println("held by the first:", busy.Holder == hold.ID())
	}
	// Output: held by the first: true
}

// An operator looks who has a lock, and ends it.
func ExampleMutex_ForceRelease() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	hold, err := locks.Mutex("orders:42").Lock(ctx) // stands for a process that hangs
	if err != nil {
		log.Fatal(err)
	}

	mu := locks.Mutex("orders:42")
	info, err := mu.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ended, err := mu.ForceRelease(ctx, info.Holder) // and not whoever has it by now
	fmt.Println(ended == hold.ID(), err)
	fmt.Println("lost:", errors.Is(hold.Unlock(ctx), redlatch.ErrLost))
	// Output:
	// true <nil>
	// lost: true
}
