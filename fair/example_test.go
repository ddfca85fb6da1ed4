package fair_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

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

// Three goroutines queue, and get the lock in the order in which they came.
func ExampleMutex_Lock() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	first, err := locks.FairMutex("reports").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var workers sync.WaitGroup
	for _, name := range []string{"Ann", "Bob", "Cid"} {
		inQueue := make(chan struct{})
		callback := redlatch.WithWaitCallback(func(w redlatch.Waiting) {
			select {
			case <-inQueue: // it moved up
			default:
				fmt.Println(name, "is in the queue at place", w.Position)
				close(inQueue)
			}
		})
		workers.Go(func() {
			hold, err := locks.FairMutex("reports", callback).Lock(ctx)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(name, "has the lock")
			if err := hold.Unlock(ctx); err != nil {
				log.Fatal(err)
			}
		})
		<-inQueue
	}
	if err := first.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	workers.Wait()
	// Output:
	// Ann is in the queue at place 1
	// Bob is in the queue at place 2
	// Cid is in the queue at place 3
	// Ann has the lock
	// Bob has the lock
	// Cid has the lock
}

func ExampleMutex_Do() {
	locks, stop := exampleClient()
	defer stop()

	err := locks.FairMutex("reports").Do(context.Background(), func(ctx context.Context) error {
		hold, ok := redlatch.HoldFromContext(ctx)
		fmt.Println(hold.Name(), ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// reports true
	// <nil>
}

// An operator looks who waits, and removes a waiter.
func ExampleMutex_RemoveWaiter() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	mu := locks.FairMutex("reports")
	hold, err := mu.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	inQueue, ended := make(chan struct{}), make(chan error)
	callback := redlatch.WithWaitCallback(func(redlatch.Waiting) { close(inQueue) })
	go func() {
		_, err := locks.FairMutex("reports", callback).Lock(ctx)
		ended <- err
	}()
	<-inQueue
	waiters, length, err := mu.Queue(ctx, 0, 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(length, "waits")
	removed, err := mu.RemoveWaiter(ctx, waiters[0].ID)
	fmt.Println("removed:", removed, err)
	fmt.Println("its Lock ends:", errors.Is(<-ended, redlatch.ErrRemoved))
	// Output:
	// 1 waits
	// removed: true <nil>
	// its Lock ends: true
}
