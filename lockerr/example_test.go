package lockerr_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lockerr"
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

// A handler answers with a status for each class of errors of Do and TryDo. The order matters: work
// that was cancelled because its lock was lost, or because the client was closed, matches two of
// them.
func Example() {
	const clientClosedRequest = 499
	// The work sets committed after its write, which had the fence, has succeeded.
	status := func(err error, committed bool) int {
		switch {
		case err == nil, committed: // the write counts, even if the lock was lost later
			return http.StatusOK
		case errors.Is(err, lockerr.ErrLost): // somebody else may have worked at the same time
			return http.StatusInternalServerError
		case errors.Is(err, lockerr.ErrClosed): // this program ends; that cancels the work
			return http.StatusServiceUnavailable
		case errors.Is(err, context.Canceled): // the client has gone
			return clientClosedRequest
		case errors.Is(err, lockerr.ErrNotAcquired): // somebody else has this lock, or one that the work asked for
			return http.StatusConflict
		case errors.Is(err, lockerr.ErrConfig): // a name of a lock that is not usable
			return http.StatusBadRequest
		case errors.Is(err, lockerr.ErrUnavailable), errors.Is(err, lockerr.ErrIndeterminate): // Redis is down
			return http.StatusServiceUnavailable
		case errors.Is(err, context.DeadlineExceeded): // the time of the request is over
			return http.StatusGatewayTimeout
		default: // an error of the work, or Redis refuses
			return http.StatusInternalServerError
		}
	}
	locks, stop := exampleClient()
	ctx := context.Background()
	work := func(context.Context) error { return nil }

	fmt.Println(status(locks.Mutex("orders:42").TryDo(ctx, work), true))
	hold, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status(locks.Mutex("orders:42").TryDo(ctx, work), false))
	_ = hold.Unlock(ctx)
	slow := func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}
	fmt.Println(status(locks.Mutex("orders:42").TryDo(ctx, slow), false))
	fmt.Println(status(locks.Mutex("orders:42").TryDo(ctx, work), false))
	// Output:
	// 200
	// 409
	// 503
	// 503
}

func ExampleNotAcquiredError() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	hold, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)

	_, err = locks.Mutex("orders:42").TryLock(ctx)
	var busy *lockerr.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println(busy.Name, "is held by the first:", busy.Holder == hold.ID())
		fmt.Println("for some time:", busy.Remaining > 0)
	}
	// Output:
	// orders:42 is held by the first: true
	// for some time: true
}

func ExampleLostError() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	mu := locks.Mutex("orders:42")
	err := mu.Do(ctx, func(ctx context.Context) error {
		_, err := mu.ForceRelease(ctx, "") // stands for somebody who takes the lock away
		return err
	})
	var lost *lockerr.LostError
	if errors.As(err, &lost) {
		fmt.Println(lost.Name, "was lost; its lease was", lost.Lease)
	}
	// Output: orders:42 was lost; its lease was 30s
}

func ExampleLimitError() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	work := func(context.Context) error { return nil }

	if err := locks.Semaphore("render", 8).Do(ctx, 1, work); err != nil {
		log.Fatal(err)
	}
	err := locks.Semaphore("render", 9).Do(ctx, 1, work) // another program with another limit
	var limit *lockerr.LimitError
	if errors.As(err, &limit) {
		fmt.Println("requested", limit.Requested, "but the limit is", limit.Limit)
	}
	// Output: requested 9 but the limit is 8
}

func ExampleConfigError() {
	locks, stop := exampleClient()
	defer stop()

	_, err := locks.Mutex("").TryLock(context.Background())
	var config *lockerr.ConfigError
	fmt.Println(errors.As(err, &config), errors.Is(err, redlatch.ErrConfig))
	// Output: true true
}
