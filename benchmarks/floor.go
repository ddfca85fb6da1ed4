package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// floors send what a lock has to send, and nothing more: SET NX PX, and a script that compares and
// deletes. The floor does not wait. If the lock is held, it asks again immediately.
var floors = library{
	name:  "floor",
	redis: true,
	sends: []string{"set", "evalsha"},
	open: func(c cell) (locker, error) {
		rdb, closeAll, err := goRedis(c)
		return floor{rdb, closeAll}, err
	},
}

type floor struct {
	rdb      redis.UniversalClient
	closeAll func()
}

var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (f floor) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	token := strconv.FormatUint(rand.Uint64(), 36)
	for ctx.Err() == nil {
		ok, err := f.rdb.SetNX(ctx, name, token, lease).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func(ctx context.Context) error {
				return compareAndDelete.Run(ctx, f.rdb, []string{name}, token).Err()
			}, nil
		}
	}
	return nil, ctx.Err()
}

func (f floor) close() { f.closeAll() }

// lease is the lease of every library.
const lease = 30 * time.Second
