package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"log"

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
