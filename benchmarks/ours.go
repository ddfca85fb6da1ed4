package main

import (
	"context"

	"github.com/redlatch/redlatch"
)

var (
	mutexes = ours("redlatch mutex", func(c *redlatch.Client, _ cell, name string) lockFunc {
		return func(ctx context.Context) (func(context.Context) error, error) {
			h, err := c.Mutex(name).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		}
	})
	fairs = ours("redlatch fair", func(c *redlatch.Client, _ cell, name string) lockFunc {
		return func(ctx context.Context) (func(context.Context) error, error) {
			h, err := c.FairMutex(name).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		}
	})
	semaphores = ours("redlatch semaphore", func(c *redlatch.Client, spec cell, name string) lockFunc {
		return func(ctx context.Context) (func(context.Context) error, error) {
			p, err := c.Semaphore(name, max(spec.Permits, 1)).Acquire(ctx, 1)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}
	})
)

type lockFunc = func(ctx context.Context) (func(context.Context) error, error)

func ours(name string, lock func(c *redlatch.Client, spec cell, name string) lockFunc) library {
	return library{
		name: name, redis: true, sends: []string{"evalsha"},
		open: func(spec cell) (locker, error) {
			rdb, closeAll, err := goRedis(spec)
			if err != nil {
				return nil, err
			}
			client, err := redlatch.New(rdb, redlatch.WithLease(lease))
			if err != nil {
				return nil, err
			}
			return &redlatchClient{client, closeAll, func(name string) lockFunc { return lock(client, spec, name) }}, nil
		},
	}
}

type redlatchClient struct {
	client   *redlatch.Client
	closeAll func()
	named    func(name string) lockFunc
}

func (c *redlatchClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	return c.named(name)(ctx)
}

func (c *redlatchClient) close() {
	_ = c.client.Close(context.Background())
	c.closeAll()
}
