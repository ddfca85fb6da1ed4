package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// https://github.com/redis/rueidis/tree/main/rueidislock: KeyMajority 1 "if you have only one Redis
// instance", NoLoopTracking "if all your Redis are >= 7.0.5", and defaults for the rest. It has a
// client of its own, which pipelines by itself.
var rueidislocks = library{
	name: "rueidislock", module: "github.com/redis/rueidis", redis: true,
	sends: []string{"set", "evalsha"},
	open: func(c cell) (locker, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: c.Addrs},
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    lease,
		})
		return rueidisClient{l}, err
	},
}

type rueidisClient struct{ locker rueidislock.Locker }

func (c rueidisClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	_, cancel, err := c.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { cancel(); return nil }, nil
}

func (c rueidisClient) close() { c.locker.Close() }
