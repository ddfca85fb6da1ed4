package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

// https://github.com/bsm/redislock#examples and its example Client.Obtain (Retry), which retries
// each 100 ms.
var redislocks = library{
	name: "bsm/redislock", module: "github.com/bsm/redislock", redis: true,
	sends: []string{"evalsha", "set"},
	open: func(c cell) (locker, error) {
		rdb, closeAll, err := goRedis(c)
		if err != nil {
			return nil, err
		}
		return redislockClient{redislock.New(rdb), closeAll}, nil
	},
}

type redislockClient struct {
	locker   *redislock.Client
	closeAll func()
}

func (c redislockClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := c.locker.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (c redislockClient) close() { c.closeAll() }
