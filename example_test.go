package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lock"
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

func chargeCard(context.Context) error { return nil }

func Example() {
	ctx := context.Background()
	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	locks, err := redlatch.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	err = locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		return chargeCard(ctx) // may lock "orders:42" again
	})
	fmt.Println(err)
	// Output: <nil>
}

func Example_hold() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	hold, err := locks.Mutex("orders:42").Lock(ctx) // ctx bounds the wait and nothing else
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	select {
	case <-hold.Lost(): // it ended, and not by Unlock: stop
	default:
		fmt.Println("trusted:", hold.Trusted(), "fenced:", hold.Fence() > 0)
	}
	// Output: trusted: true fenced: true
}

func Example_reentry() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	outer, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer outer.Unlock(ctx)

	// As deep below it as you like, with the context of the hold:
	inner, err := locks.Mutex("orders:42").Lock(outer.Context())
	if err != nil {
		log.Fatal(err)
	}
	defer inner.Unlock(ctx)

	fmt.Println("one grant:", outer.Fence() == inner.Fence())
	// Output: one grant: true
}

func ExampleHoldFromContext() {
	locks, stop := exampleClient()
	defer stop()

	err := locks.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		hold, ok := redlatch.HoldFromContext(ctx) // also in the functions that this one calls
		fmt.Println(hold.Name(), "fenced:", hold.Fence() > 0, ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// orders:42 fenced: true true
	// <nil>
}

func ExampleCall() {
	locks, stop := exampleClient()
	defer stop()

	total, err := redlatch.Call(context.Background(), locks.Mutex("orders:42"), func(context.Context) (int, error) {
		return 3 * 14, nil
	})
	fmt.Println(total, err)
	// Output: 42 <nil>
}

func ExampleWithOwner() {
	locks, stop := exampleClient()
	defer stop()

	// All locks of this context and of contexts derived from it have one owner.
	ctx := redlatch.WithOwner(context.Background())
	outer, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer outer.Unlock(ctx)
	inner, err := locks.Mutex("orders:42").Lock(ctx) // not outer.Context()
	if err != nil {
		log.Fatal(err)
	}
	defer inner.Unlock(ctx)

	fmt.Println("one grant:", outer.Fence() == inner.Fence())
	// Output: one grant: true
}

func Example_errors() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	held, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer held.Unlock(ctx)

	hold, err := locks.Mutex("orders:42").TryLock(ctx) // waits for nobody
	var busy *redlatch.NotAcquiredError
	switch {
	case err == nil:
		defer hold.Unlock(ctx)
	case errors.As(err, &busy):
		fmt.Println("somebody else has it:", busy.Holder != "")
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrIndeterminate):
		fmt.Println("Redis is down, or hangs")
	default:
		fmt.Println("something else:", err)
	}
	// Output: somebody else has it: true
}

func runNightly(context.Context) error { return nil }

func Example_fair() {
	ctx := context.Background()
	locks, stop := exampleClient()
	defer stop()

	job := locks.FairMutex("nightly", redlatch.WithWaitCallback(func(w lock.Waiting) {
		fmt.Printf("%d of %d; %s has it\n", w.Position, w.Length, w.Description)
	}))
	if err := job.Do(ctx, runNightly); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
	// Output: done
}

func renderFrame(context.Context) error { return nil }

func Example_semaphore() {
	ctx := context.Background()
	locks, stop := exampleClient()
	defer stop()

	// All programs pass the same limit. Redis keeps it.
	render := locks.Semaphore("render", 8)
	if err := render.Do(ctx, 1, renderFrame); err != nil { // waits for one of eight permits
		log.Fatal(err)
	}

	permit, err := render.Acquire(ctx, 3) // or three of them, as one
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	info, err := render.Inspect(ctx)
	fmt.Println(info.InUse, "of", info.Limit, "in use", err)
	// Output: 3 of 8 in use <nil>
}

func ExampleClient_Close() {
	locks, stop := exampleClient()
	defer stop()
	hold, err := locks.Mutex("orders:42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locks.Close(ctx); err != nil { // releases what is held
		log.Println(err)
	}
	<-hold.Lost()
	fmt.Println(context.Cause(hold.Context()))
	// Output: redlatch: client is closed
}
