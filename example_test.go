package redlatch_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
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

func charge(context.Context, int64) error { return nil }

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
	defer locks.Close(ctx) // releases what is still held

	order := locks.Mutex("orders:42", redlatch.WithWaitTimeout(2*time.Second))
	err = order.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
		hold, _ := redlatch.HoldFromContext(ctx)
		return charge(ctx, hold.Fence()) // may lock "orders:42" again, with this ctx
	}) // redlatch.ErrNotAcquired: somebody else had it for all of the two seconds
	fmt.Println(err)
	// Output: <nil>
}

func ExampleNew() {
	server := miniredis.NewMiniRedis() // stands for your Redis
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	locks, err := redlatch.New(rdb,
		redlatch.WithPrefix("svc:"),
		redlatch.WithDescription("api-7"),
		redlatch.WithLease(10*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	hold, err := locks.Mutex("orders:42", redlatch.WithLease(time.Minute)).Lock(ctx) // overrides that of the client
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	info, err := locks.Mutex("orders:42").Inspect(ctx)
	fmt.Println(info.Name, "held by", info.Description, "for more than 10 s:", info.Remaining > 10*time.Second, err)
	// Output: svc:orders:42 held by api-7 for more than 10 s: true <nil>
}

// A lock that one replica of the master must have too. It needs a server with replicas.
func ExampleWithReplicas() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks, err := redlatch.New(rdb, redlatch.WithReplicas(1, time.Second))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	err = locks.Mutex("orders:42").Do(ctx, chargeCard)
	var few *redlatch.NotReplicatedError
	if errors.As(err, &few) { // nobody has the lock now
		log.Printf("%d of %d replicas acknowledged the lock", few.Acknowledged, few.Needed)
	}
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

// withdraw stands for a write to a store that rejects fences below the largest it has seen.
func withdraw(_ context.Context, account string, fence int64) error {
	fmt.Println(account, "fenced:", fence > 0)
	return nil
}

// Under two locks, each write has the fence of its own lock.
func ExampleMutex_HoldFrom() {
	locks, stop := exampleClient()
	defer stop()

	from, to := locks.Mutex("accounts:1"), locks.Mutex("accounts:2")
	err := from.Do(context.Background(), func(ctx context.Context) error {
		return to.Do(ctx, func(ctx context.Context) error {
			hold, ok := from.HoldFrom(ctx) // HoldFromContext would return the hold of accounts:2
			if !ok {
				return errors.New("not under the lock")
			}
			return withdraw(ctx, hold.Name(), hold.Fence())
		})
	})
	fmt.Println(err)
	// Output:
	// accounts:1 fenced: true
	// <nil>
}

// chargeSoon waits for the lock for at most two seconds. The work has the time of ctx.
func chargeSoon(ctx context.Context, locks *redlatch.Client) error {
	mu := locks.Mutex("orders:42", redlatch.WithWaitTimeout(2*time.Second))
	return mu.Do(ctx, chargeCard)
}

func Example_boundedWait() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	fmt.Println(chargeSoon(ctx, locks))

	hold, err := locks.Mutex("orders:42").Lock(ctx) // of another request
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	err = chargeSoon(ctx, locks)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true false
}

// chargeWithin waits for at most one second in total, for both locks. The work has the time of ctx.
func chargeWithin(ctx context.Context, locks *redlatch.Client) error {
	ctx = redlatch.WithWaitDeadline(ctx, time.Now().Add(time.Second))
	return locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		return locks.Mutex("accounts:7").Do(ctx, chargeCard)
	})
}

// One limit for all waits of a request, however many locks it takes.
func Example_waitDeadline() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	fmt.Println(chargeWithin(ctx, locks))

	hold, err := locks.Mutex("accounts:7").Lock(ctx) // of another request
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock(ctx)
	err = chargeWithin(ctx, locks)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true false
}

// The context of Lock bounds the wait, and not the hold.
func Example_boundedLock() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	wait, cancel := context.WithTimeout(ctx, 2*time.Second)
	hold, err := locks.Mutex("orders:42").Lock(wait)
	cancel() // this does not end the hold
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("trusted:", hold.Trusted())
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// trusted: true
	// <nil>
}

func reserve(context.Context) error { return nil }

// Goroutines under a lock share it. They exclude each other from every other lock.
func Example_errgroup() {
	ctx := context.Background()
	locks, stop := exampleClient()
	defer stop()

	err := locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, item := range []string{"paper", "ink", "paper"} {
			group.Go(func() error { return locks.Mutex("stock:"+item).Do(ctx, reserve) })
		}
		return group.Wait()
	})
	fmt.Println(err)
	// Output: <nil>
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

var runNightly = func(context.Context) error { return nil }

func writeReport(context.Context) error { return nil }

func Example_fair() {
	ctx := context.Background()
	locks, stop := exampleClient()
	defer stop()

	job := locks.FairMutex("reports", redlatch.WithWaitCallback(func(w lock.Waiting) {
		fmt.Printf("%d of %d; %s has it\n", w.Position, w.Length, w.Description)
	}))
	if err := job.Do(ctx, writeReport); err != nil {
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

// nightly runs the job of one night on one of the replicas, and returns when it is done. Until ctx
// ends, it tries again once a minute: if Redis does not answer, or if the job fails here or on
// another replica. A later night has another lock.
func nightly(ctx context.Context, locks *redlatch.Client, night time.Time) error {
	mutex := locks.Mutex("nightly:" + night.UTC().Format(time.DateOnly))
	for done := false; ; {
		err := mutex.TryDo(ctx, func(ctx context.Context) error {
			if !done {
				if err := runNightly(ctx); err != nil {
					return err
				}
				done = true
			}
			hold, _ := mutex.HoldFrom(ctx)
			return hold.UnlockAfter(ctx, 24*time.Hour) // nobody repeats the job of this night
		})
		if err == nil || errors.Is(err, redlatch.ErrClosed) || errors.Is(err, redlatch.ErrConfig) {
			return err
		}
		var busy *redlatch.NotAcquiredError
		if errors.As(err, &busy) && busy.Name == mutex.Name() && busy.IsKept() {
			return nil // another replica has done it
		}
		log.Printf("nightly: retry in a minute (job done here: %v): %v", done, err)
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func Example_onceANight() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	night := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC)
	fmt.Println(nightly(ctx, locks, night)) // this replica runs it
	fmt.Println(nightly(ctx, locks, night)) // this one does not, at any time of this day
	info, err := locks.Mutex("nightly:2026-11-24").Inspect(ctx)
	fmt.Println("kept:", info.Remaining > 23*time.Hour, err)
	fmt.Println(nightly(ctx, locks, night.AddDate(0, 0, 1))) // the next night
	// Output:
	// <nil>
	// <nil>
	// kept: true <nil>
	// <nil>
}

// transfer locks two accounts, in the order of their names.
func transfer(ctx context.Context, locks *redlatch.Client, from, to string) error {
	names := []string{"accounts:" + from, "accounts:" + to}
	slices.Sort(names)
	first, second := locks.Mutex(names[0]), locks.Mutex(names[1])
	return first.Do(ctx, func(ctx context.Context) error {
		return second.Do(ctx, func(ctx context.Context) error {
			a, _ := first.HoldFrom(ctx)
			b, _ := second.HoldFrom(ctx)
			return move(ctx, from, to, map[string]int64{names[0]: a.Fence(), names[1]: b.Fence()})
		})
	})
}

func move(_ context.Context, from, to string, fences map[string]int64) error {
	if fences["accounts:"+from] == 0 || fences["accounts:"+to] == 0 {
		return errors.New("a lock is missing")
	}
	fmt.Println("moves from", from, "to", to)
	return nil
}

func Example_severalNames() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	fmt.Println(transfer(ctx, locks, "ann", "bob"))
	fmt.Println(transfer(ctx, locks, "bob", "ann"))
	fmt.Println(transfer(ctx, locks, "ann", "ann")) // the second lock re-enters the first
	// Output:
	// moves from ann to bob
	// <nil>
	// moves from bob to ann
	// <nil>
	// moves from ann to ann
	// <nil>
}

func readPrices(context.Context) error   { return nil }
func changePrices(context.Context) error { return nil }

func Example_readersAndWriters() {
	locks, stop := exampleClient()
	defer stop()
	ctx := context.Background()

	const most = 50 // readers at a time
	prices := locks.Semaphore("prices", most)
	if err := prices.Do(ctx, 1, readPrices); err != nil { // beside other readers
		log.Fatal(err)
	}
	if err := prices.Do(ctx, most, changePrices); err != nil { // alone
		log.Fatal(err)
	}

	reader, err := prices.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release(ctx)
	fmt.Println("another reader:", prices.TryDo(ctx, 1, readPrices))
	fmt.Println("a writer waits:", errors.Is(prices.TryDo(ctx, most, changePrices), redlatch.ErrNotAcquired))
	// Output:
	// another reader: <nil>
	// a writer waits: true
}

// counter counts events, for instance as "lost_gone" and "wait_ended_acquired".
type counter struct{ expvar.Map }

func (c *counter) Observe(_ context.Context, e event.Event) {
	name := e.Kind.String()
	if e.Result != 0 {
		name += "_" + e.Result.String()
	}
	c.Add(name, 1)
	if e.Kind == event.Lost {
		slog.Error("lock lost", "name", e.Name, "id", e.ID, "fence", e.Fence, "why", e.Result, "age", e.Duration)
	}
}

// openLocks makes the client that the program uses as long as it runs. stop releases its locks.
func openLocks(options *redis.Options, events redlatch.Observer) (locks *redlatch.Client, stop func(), err error) {
	options.ContextTimeoutEnabled = true
	rdb := redis.NewClient(options)
	locks, err = redlatch.New(rdb, redlatch.WithPrefix("svc:"), redlatch.WithObserver(events))
	if err != nil {
		rdb.Close()
		return nil, nil, err
	}
	return locks, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			slog.Error("locks are left to their leases", "error", err)
		}
		rdb.Close()
	}, nil
}

func Example_production() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	events := new(counter)
	locks, stop, err := openLocks(&redis.Options{Addr: server.Addr()}, events)
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Mutex("orders:42").Do(context.Background(), chargeCard)
	stop()
	fmt.Println(events.Get("wait_began"), events.Get("wait_ended_acquired"), events.Get("released"), err)
	// Output: 1 1 1 <nil>
}
