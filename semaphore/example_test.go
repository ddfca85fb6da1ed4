package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

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

// Twelve jobs run, at most three at a time, also if they are in several processes.
func ExampleSemaphore_Do() {
	locks, stop := exampleClient()
	defer stop()

	var running, most, done atomic.Int32
	render := locks.Semaphore("render", 3)
	group, ctx := errgroup.WithContext(context.Background())
	for range 12 {
		group.Go(func() error {
			return render.Do(ctx, 1, func(context.Context) error {
				if now := running.Add(1); now > most.Load() {
					most.Store(now)
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				done.Add(1)
				return nil
			})
		})
	}
	err := group.Wait()
	fmt.Println(done.Load(), "jobs, never more than three:", most.Load() <= 3, err)
	// Output: 12 jobs, never more than three: true <nil>
}

// Work that hangs loses its permit, because it reports no progress.
func ExampleSemaphore_PermitFrom() {
	locks, stop := exampleClient()
	defer stop()

	render := locks.Semaphore("render", 3, redlatch.WithProgressTimeout(time.Minute))
	err := render.Do(context.Background(), 1, func(ctx context.Context) error {
		permit, _ := render.PermitFrom(ctx)
		for page := range 3 {
			fmt.Println("page", page)
			permit.ReportProgress() // a page that takes over a minute costs the permit
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// page 0
	// page 1
	// page 2
	// <nil>
}

func ExampleSemaphore_Acquire() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	memory := locks.Semaphore("memory-gb", 64)
	permit, err := memory.Acquire(ctx, 48) // waits until so much is free
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	info, err := memory.Inspect(ctx)
	fmt.Println(permit.Units(), "units,", info.InUse, "of", info.Limit, "in use", err)
	// Output: 48 units, 48 of 64 in use <nil>
}

func ExampleSemaphore_TryAcquire() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	render := locks.Semaphore("render", 1)
	permit, err := render.TryAcquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)

	_, err = render.TryAcquire(ctx, 1)
	var busy *redlatch.NotAcquiredError
	fmt.Println(errors.As(err, &busy), busy.InUse, "of", busy.Limit)
	// Output: true 1 of 1
}

// All programs pass the same limit. Resize changes it while they run.
func ExampleSemaphore_Resize() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	render := locks.Semaphore("render", 8)
	if err := render.Do(ctx, 1, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	before, err := render.Resize(ctx, 4)
	fmt.Println("before:", before, err)

	fmt.Println(render.TryDo(ctx, 4, func(context.Context) error { return nil }))
	err = render.TryDo(ctx, 5, func(context.Context) error { return nil })
	var limit *redlatch.LimitError
	fmt.Println("too many:", errors.As(err, &limit), "limit", limit.Limit)
	// Output:
	// before: 8 <nil>
	// <nil>
	// too many: true limit 4
}

// A quota: whoever has used a unit leaves it in use for a minute.
func ExamplePermit_ReleaseAfter() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	quota := locks.Semaphore("requests-per-minute", 2)
	for range 3 {
		permit, err := quota.TryAcquire(ctx, 1)
		if errors.Is(err, redlatch.ErrNotAcquired) {
			fmt.Println("try again later")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("sends a request")
		if err := permit.ReleaseAfter(ctx, time.Minute); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// sends a request
	// sends a request
	// try again later
}
