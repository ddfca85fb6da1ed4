package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// https://github.com/go-redsync/redsync#usage: one pool for one Redis, as on that page. Its Lock
// gives up after 32 attempts, so the cell calls it again.
var redsyncs = library{
	name: "redsync", module: "github.com/go-redsync/redsync/v4", redis: true,
	sends: []string{"set", "evalsha"},
	open: func(c cell) (locker, error) {
		rdb, closeAll, err := goRedis(c)
		if err != nil {
			return nil, err
		}
		return redsyncClient{redsync.New(goredis.NewPool(rdb)), closeAll}, nil
	},
}

type redsyncClient struct {
	rs       *redsync.Redsync
	closeAll func()
}

func (c redsyncClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		m := c.rs.NewMutex(name, redsync.WithExpiry(lease))
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, nil
		case ctx.Err() != nil, !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed):
			return nil, err
		}
	}
}

func (c redsyncClient) close() { c.closeAll() }
