package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tutorials teach this as the correct form. One command with a unique value takes the lock, and a
// script compares and deletes. The lease is the time that the author expects the job to take.
type scripted struct {
	rdb *redis.Client
	ttl time.Duration
}

var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (l scripted) lock(ctx context.Context, name string) (unlock func() error, err error) {
	value := strconv.FormatUint(rand.Uint64(), 36)
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		ok, err := l.rdb.SetNX(ctx, name, value, l.ttl).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func() error { return compareAndDelete.Run(ctx, l.rdb, []string{name}, value).Err() }, nil
		}
	}
	return nil, ctx.Err()
}

var withoutRenewal = recipe{
	name: "3. SET NX EX with a unique value, a script that releases; no renewal, no re-entry",
	flaws: []flaw{
		{
			name: "two holders after a job that took longer than the lease",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				const ttl = 300 * time.Millisecond
				if _, err := (scripted{s.client(), ttl}).lock(ctx, "door"); err != nil {
					return false, "", err
				}
				job, cancel := context.WithTimeout(ctx, 4*ttl)
				defer cancel()
				_, err := scripted{s.client(), ttl}.lock(job, "door") // A still works
				return err == nil, "A works for four leases; B is in after one", nil
			},
			ours: func(ctx context.Context, s *stage) (bool, string, error) {
				const lease = 300 * time.Millisecond
				a, errA := s.locks(lease)
				b, errB := s.locks(lease)
				if err := errors.Join(errA, errB); err != nil {
					return false, "", err
				}
				h, err := a.Mutex("door").Lock(ctx)
				if err != nil {
					return false, "", err
				}
				job, cancel := context.WithTimeout(ctx, 4*lease)
				defer cancel()
				_, err = b.Mutex("door").Lock(job)
				return err == nil || !h.Trusted(), "A works for four leases, which are renewed; B waits", nil
			},
		},
		{
			name: "a nested call that takes the same lock waits for itself",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				l := scripted{s.client(), time.Minute}
				if _, err := l.lock(ctx, "door"); err != nil {
					return false, "", err
				}
				nested, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := l.lock(nested, "door")
				return err != nil, "the inner call gives up after a second", nil
			},
			ours: func(ctx context.Context, s *stage) (bool, string, error) {
				locks, err := s.locks(time.Second)
				if err != nil {
					return false, "", err
				}
				err = locks.Mutex("door").Do(ctx, func(ctx context.Context) error {
					nested, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					return locks.Mutex("door").Do(nested, func(context.Context) error { return nil })
				})
				return err != nil, "the inner call enters the lock again", nil
			},
		},
	},
}
