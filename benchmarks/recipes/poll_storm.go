package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tutorials teach this as the lock for everything. It has a prefix, an owner, and a script that
// releases. A caller waits for up to ten minutes, and asks ten thousand times a second meanwhile.
type polling struct {
	rdb    *redis.Client
	prefix string
	owner  string
}

func (l polling) lock(ctx context.Context, name string) error {
	for end := time.Now().Add(600 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
		ok, err := l.rdb.SetNX(ctx, l.prefix+name, l.owner, 30*time.Second).Result()
		if ok || err != nil {
			return err
		}
	}
	return errors.Join(errTimeout, ctx.Err())
}

func (l polling) unlock(ctx context.Context, name string) error {
	return compareAndDelete.Run(ctx, l.rdb, []string{l.prefix + name}, l.owner).Err()
}

var pollStorm = recipe{
	name: "5. Prefix, owner, ten minutes of waiting with 0.1 ms between the tries, a hundred threads",
	flaws: []flaw{{
		name: "who waits keeps the server busy: more than ten commands a turn",
		taught: func(ctx context.Context, s *stage) (bool, string, error) {
			sent := new(counter)
			rdb := s.client(sent)
			return storm(ctx, sent, func(ctx context.Context) (func(context.Context) error, error) {
				l := polling{rdb, "lock:", strconv.FormatUint(rand.Uint64(), 36)}
				return func(ctx context.Context) error { return l.unlock(ctx, "door") }, l.lock(ctx, "door")
			})
		},
		ours: func(ctx context.Context, s *stage) (bool, string, error) {
			sent := new(counter)
			locks, err := s.locks(30*time.Second, sent)
			if err != nil {
				return false, "", err
			}
			return storm(ctx, sent, func(ctx context.Context) (func(context.Context) error, error) {
				h, err := locks.Mutex("door").Lock(ctx)
				if err != nil {
					return nil, err
				}
				return h.Unlock, nil
			})
		},
	}},
}

// storm runs a hundred goroutines for two seconds. All of them take one lock for a millisecond of
// work.
func storm(ctx context.Context, sent *counter, lock func(context.Context) (func(context.Context) error, error)) (bool, string, error) {
	working, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var turns atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for working.Err() == nil {
				unlock, err := lock(working)
				if err == nil {
					time.Sleep(time.Millisecond)
					turns.Add(1)
					err = unlock(ctx)
				}
				if err != nil && working.Err() == nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return false, "", *err
	}
	each := float64(sent.sent.Load()) / float64(max(turns.Load(), 1))
	return each > 10, fmt.Sprintf("%d turns in 2 s, %.1f commands a turn", turns.Load(), each), nil
}
