package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// Tutorials teach this as "the distributed lock in five lines". SETNX takes the lock, and DEL
// releases it. EXPIRE should free it if its holder crashes. A waiter asks again each 10 ms.
type twoCommands struct {
	rdb *redis.Client
	ttl time.Duration
}

func (l twoCommands) lock(ctx context.Context, name string) error {
	for ctx.Err() == nil {
		ok, err := l.rdb.SetNX(ctx, name, "locked", 0).Result()
		if err != nil {
			return err
		}
		if ok {
			return l.rdb.PExpire(ctx, name, l.ttl).Err()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

func (l twoCommands) unlock(ctx context.Context, name string) error {
	return l.rdb.Del(ctx, name).Err()
}

var setnxThenExpire = recipe{
	name: "1. SETNX, then EXPIRE; DEL without looking whose lock it is",
	flaws: []flaw{
		{
			name: "a crash between the two commands locks for ever",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				const ttl = 200 * time.Millisecond
				if err := (twoCommands{s.client(&crash{after: 1}), ttl}).lock(ctx, "door"); !errors.Is(err, errCrashed) {
					return false, "", fmt.Errorf("did not crash: %w", err)
				}
				next, cancel := context.WithTimeout(ctx, 10*ttl)
				defer cancel()
				err := (twoCommands{s.client(), ttl}).lock(next, "door")
				left := s.client().PTTL(ctx, "door").Val()
				return err != nil, fmt.Sprintf("the next one waits in vain for ten leases, and the key has no end: PTTL %d", left), nil
			},
			ours: func(ctx context.Context, s *stage) (bool, string, error) {
				const lease = time.Second
				for commands := range 4 {
					locks, err := s.locks(lease, &crash{after: commands})
					if err != nil {
						return false, "", err
					}
					dying, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					_, _ = locks.Mutex("door").Lock(dying)
					cancel()
					if left := s.client().PTTL(ctx, "door").Val(); left == -1 {
						return true, "the key has no end", nil
					}
					next, err := s.locks(lease)
					if err != nil {
						return false, "", err
					}
					waiting, cancel := context.WithTimeout(ctx, 10*lease)
					h, err := next.Mutex("door").Lock(waiting)
					cancel()
					if err != nil {
						return true, "the next one waits in vain", nil
					}
					if err := h.Unlock(ctx); err != nil {
						return false, "", err
					}
				}
				return false, "whoever crashes after the first, second or third command, the next one has the lock after a lease", nil
			},
		},
		{
			name: "a late DEL frees somebody else's lock",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				const ttl = 200 * time.Millisecond
				a, b, c := twoCommands{s.client(), ttl}, twoCommands{s.client(), time.Minute}, twoCommands{s.client(), time.Minute}
				if err := errors.Join(a.lock(ctx, "door"), b.lock(ctx, "door"), a.unlock(ctx, "door")); err != nil {
					return false, "", err
				}
				third, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				err := c.lock(third, "door") // and B has not unlocked
				return err == nil, "A's lease ended, B has the lock, A deletes it, C is in beside B", nil
			},
			ours: lateUnlock,
		},
	},
}

// lateUnlock lets A unlock when its lease has ended and B has the lock. A is stalled for longer
// than its lease, and so are its renewals.
func lateUnlock(ctx context.Context, s *stage) (bool, string, error) {
	const lease = time.Second
	a, err := redlatch.New(s.client(), redlatch.WithLease(lease), redlatch.WithoutRenewal())
	if err != nil {
		return false, "", err
	}
	b, err := s.locks(time.Minute)
	if err != nil {
		return false, "", err
	}
	mine, err := a.Mutex("door").Lock(ctx)
	if err != nil {
		return false, "", err
	}
	theirs, err := b.Mutex("door").Lock(ctx) // when A's lease has ended
	if err != nil {
		return false, "", err
	}
	late := mine.Unlock(ctx)
	third, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := s.locks(time.Minute)
	if err != nil {
		return false, "", err
	}
	_, err = c.Mutex("door").Lock(third)
	if err == nil {
		return true, "C is in beside B", nil
	}
	return false, fmt.Sprintf("A gets %q, and B still has the lock: trusted %t", late, theirs.Trusted()), nil
}
