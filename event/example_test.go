package event_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
)

// counter counts waits by their results. A real one uses counters that other goroutines may read.
type counter map[string]int

func (c counter) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.WaitEnded {
		c[e.Primitive.String()+" "+e.Result.String()]++
	}
}

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	waits := counter{}
	locks, err := redlatch.New(rdb, redlatch.WithObserver(waits))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	hold, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := locks.Mutex("orders:42").TryLock(ctx); err == nil {
		log.Fatal("two holders")
	}
	if err := hold.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil { // the observer has got all events then
		log.Fatal(err)
	}
	fmt.Println(waits)
	// Output: map[mutex acquired:1 mutex busy:1]
}

// An alert for each lock that is lost.
func ExampleFunc() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	alerts := make(chan string, 10) // an observer must not block
	locks, err := redlatch.New(rdb, redlatch.WithObserver(event.Func(func(_ context.Context, e event.Event) {
		if e.Kind == event.Lost {
			alerts <- fmt.Sprint(e.Primitive, " ", e.Name, " lost: ", e.Result)
		}
	})))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	hold, err := locks.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	server.FlushAll()
	fmt.Println(errors.Is(hold.Unlock(ctx), redlatch.ErrLost))
	fmt.Println(<-alerts)
	// Output:
	// true
	// mutex orders:42 lost: gone
}
