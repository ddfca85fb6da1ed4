package redlatchotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchotel"
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

// A program that has set the global providers needs no options.
func Example() {
	ctx := context.Background()
	rdb, stop := connect()
	defer stop()

	metrics, err := redlatchotel.NewMetrics()
	if err != nil {
		log.Fatal(err)
	}
	traces, err := redlatchotel.NewTraces()
	if err != nil {
		log.Fatal(err)
	}
	rdb.AddHook(metrics.RedisHook()) // optional: the duration of scripts
	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics), redlatch.WithObserver(traces))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	fmt.Println(locks.Mutex("orders:42").Do(ctx, func(context.Context) error { return nil }))
	// Output: <nil>
}

// A program has readers and exporters of its own. If it sets the global meter provider, it needs no
// option here.
func ExampleNewMetrics() {
	ctx := context.Background()
	rdb, stop := connect()
	defer stop()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	metrics, err := redlatchotel.NewMetrics(redlatchotel.WithMeterProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	rdb.AddHook(metrics.RedisHook()) // optional: the duration of scripts
	locks, err := redlatch.New(rdb, redlatch.WithObserver(metrics))
	if err != nil {
		log.Fatal(err)
	}

	if err := locks.Mutex("orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil { // the metrics have all events then
		log.Fatal(err)
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &got); err != nil {
		log.Fatal(err)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if m.Name == "redlatch.grants" {
			fmt.Println(m.Name, m.Unit, m.Data.(metricdata.Sum[float64]).DataPoints[0].Value)
		}
	}
	// Output: redlatch.grants {grant} 1
}

func ExampleNewTraces() {
	rdb, stop := connect()
	defer stop()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))

	traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.New(rdb, redlatch.WithObserver(traces))
	if err != nil {
		log.Fatal(err)
	}

	ctx, request := provider.Tracer("shop").Start(context.Background(), "POST /orders/42/charge")
	if err := locks.Mutex("orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	request.End()
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"redlatch.wait", "redlatch.hold"} {
		for _, span := range spans.Ended() {
			if span.Name() == name {
				fmt.Println(name, "is a child of the request:", span.Parent().SpanID() == request.SpanContext().SpanID())
			}
		}
	}
	// Output:
	// redlatch.wait is a child of the request: true
	// redlatch.hold is a child of the request: true
}
