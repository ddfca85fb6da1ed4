package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// reindex is the program under test: a job that only one process may run.
func reindex(ctx context.Context, locks *redlatch.Client, job func(context.Context) error) string {
	err := locks.Mutex("reindex").TryDo(ctx, job)
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, redlatch.ErrNotAcquired):
		return "runs elsewhere"
	case errors.Is(err, redlatch.ErrLost):
		return "broken off"
	case errors.Is(err, redlatch.ErrUnavailable):
		return "no Redis"
	}
	return "failed"
}

func quick(context.Context) error { return nil }

// In your tests, the body is that of a func TestNightly(t *testing.T).
func Example() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		fmt.Println(reindex(context.Background(), server.Client, quick))

		release := server.HoldElsewhere("reindex")
		fmt.Println(reindex(context.Background(), server.Client, quick))

		release()
		fmt.Println(reindex(context.Background(), server.Client, quick))
	})
	// Output:
	// done
	// runs elsewhere
	// done
}

func ExampleServer_NewClient() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		first := reindex(context.Background(), server.Client, func(context.Context) error {
			second := server.NewClient() // another process starts while the first works
			fmt.Println(reindex(context.Background(), second, quick))
			return nil
		})
		fmt.Println(first)
	})
	// Output:
	// runs elsewhere
	// done
}

func ExampleServer_Lose() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		fmt.Println(reindex(context.Background(), server.Client, func(ctx context.Context) error {
			server.Lose("reindex")
			<-ctx.Done()
			return ctx.Err()
		}))
	})
	// Output: broken off
}

func ExampleServer_Advance() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t, redlatch.WithLease(10*time.Second))
		server.HoldElsewhere("reindex")
		fmt.Println(reindex(context.Background(), server.Client, quick))

		server.Advance(10 * time.Second) // the other process has crashed
		fmt.Println(reindex(context.Background(), server.Client, quick))
	})
	// Output:
	// runs elsewhere
	// done
}

func ExampleServer_Down() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		server.Down()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		fmt.Println(reindex(ctx, server.Client, quick))

		server.Up()
		fmt.Println(reindex(context.Background(), server.Client, quick))
	})
	// Output:
	// no Redis
	// done
}

func ExampleServer_FailNext() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		server.FailNext(redlatchtest.OpLock, errors.New("OOM command not allowed when used memory > 'maxmemory'"))
		fmt.Println(reindex(context.Background(), server.Client, quick))
	})
	// Output: failed
}

func ExampleServer_AcquireElsewhere() {
	example(func(t testing.TB) {
		server := redlatchtest.New(t)
		server.AcquireElsewhere("render", 8, 7)
		render := server.Client.Semaphore("render", 8)
		_, err := render.TryAcquire(context.Background(), 2)
		fmt.Println(errors.Is(err, redlatch.ErrNotAcquired))
		fmt.Println(render.Do(context.Background(), 1, quick))
	})
	// Output:
	// true
	// <nil>
}
