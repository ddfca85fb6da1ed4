package lock_test

import (
	"context"
	"fmt"
	"log"

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

// writeOrder stands for a write to a resource that rejects fences below the largest it has seen.
func writeOrder(_ context.Context, fence int64) error {
	fmt.Println("fenced:", fence > 0)
	return nil
}

func ExampleFromContext() {
	locks, stop := exampleClient()
	defer stop()

	err := locks.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		hold, ok := lock.FromContext(ctx) // also in the functions that this one calls
		if !ok {
			return fmt.Errorf("not under a lock")
		}
		return writeOrder(ctx, hold.Fence())
	})
	fmt.Println(err)
	// Output:
	// fenced: true
	// <nil>
}
