package redlatchprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchprom"
)

// connect returns a go-redis client of an embedded server. A program has a real one.
func connect() (rdb *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() { rdb.Close(); server.Close() }
}

func Example() {
	ctx := context.Background()
	rdb, stop := connect()
	defer stop()

	metrics, err := redlatchprom.New()
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	rdb.AddHook(metrics.RedisHook()) // optional: the duration of scripts
	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics))
	if err != nil {
		log.Fatal(err)
	}

	if err := locks.Mutex("orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil { // the collector has all events then
		log.Fatal(err)
	}
	err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP redlatch_grants_total Grants that a call returned, by where they came from. The source handoff is a local handoff.
# TYPE redlatch_grants_total counter
redlatch_grants_total{primitive="mutex",source="redis"} 1
`), "redlatch_grants_total")
	fmt.Println(err)
	// Output: <nil>
}

// The names "svc:orders:1", "svc:orders:2" and so on have one label.
func ExampleWithNameLabel() {
	ctx := context.Background()
	rdb, stop := connect()
	defer stop()

	metrics, err := redlatchprom.New(redlatchprom.WithNameLabel(func(name string) string {
		kind, _, _ := strings.Cut(strings.TrimPrefix(name, "svc:"), ":")
		return kind
	}))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.New(rdb, redlatch.WithPrefix("svc:"), redlatch.WithObserver(metrics))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"orders:1", "orders:2", "reports:7"} {
		if err := locks.Mutex(name).Do(ctx, func(context.Context) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(testutil.CollectAndCount(metrics, "redlatch_grants_total"), "series")
	// Output: 2 series
}

func ExampleCollector_WatchFairMutex() {
	ctx := context.Background()
	rdb, stop := connect()
	defer stop()

	metrics, err := redlatchprom.New()
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	if err := metrics.WatchFairMutex(locks.FairMutex("reports")); err != nil {
		log.Fatal(err)
	}
	if err := metrics.WatchSemaphore(locks.Semaphore("render", 8)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(testutil.CollectAndCount(metrics, "redlatch_queue_length"), "queues")
	// Output: 2 queues
}
