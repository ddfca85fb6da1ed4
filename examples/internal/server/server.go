// Package server finds the Redis that an example uses.
package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// URL returns REDIS_URL if it is set. Otherwise it starts an embedded server, so that the example
// runs on a machine that has only Go.
func URL() (url string, stop func(), err error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		fmt.Printf("Using the Redis of REDIS_URL.\n")
		return url, func() {}, answers(url)
	}
	url, stop, err = Listen("127.0.0.1:0")
	if err == nil {
		fmt.Printf("Using an embedded server (set REDIS_URL for a real one).\n")
	}
	return url, stop, err
}

// Listen starts an embedded server.
func Listen(addr string) (url string, stop func(), err error) {
	embedded := miniredis.NewMiniRedis()
	embedded.ClockTTL(true) // leases end by the real clock
	if err := embedded.StartAddr(addr); err != nil {
		return "", nil, err
	}
	return "redis://" + embedded.Addr(), embedded.Close, nil
}

// Connect opens a go-redis client.
func Connect(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

// answers reports problems of a server before the example begins. A lock without a deadline would
// wait for the server as long as it is away.
func answers(url string) error {
	logging.Disable() // it would print the same for each attempt to connect
	rdb, err := Connect(url)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("REDIS_URL is %s: %w", rdb.Options().Addr, err)
	}
	return nil
}
