package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tutorials teach this as the corrected form of the first recipe. One command takes the lock with a
// unique value, and a caller can limit its wait. GET, a comparison in the client, and DEL release
// the lock.
type comparing struct {
	rdb *redis.Client
	ttl time.Duration
}

func (l comparing) lock(ctx context.Context, name string, timeout time.Duration) (value string, err error) {
	value = strconv.FormatUint(rand.Uint64(), 36)
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ok, err := l.rdb.SetNX(ctx, name, value, l.ttl).Result()
		if ok || err != nil {
			return value, err
		}
	}
	return "", errTimeout
}

var errTimeout = errors.New("no lock in time")

func (l comparing) unlock(ctx context.Context, name, value string) error {
	stored, err := l.rdb.Get(ctx, name).Result()
	if err != nil || stored != value {
		return err
	}
	return l.rdb.Del(ctx, name).Err()
}

var compareInTheClient = recipe{
	name: "2. SET NX EX with a value of one's own; GET, compare and DEL from the client",
	flaws: []flaw{{
		name: "the lock of another is deleted between the comparison and DEL",
		taught: func(ctx context.Context, s *stage) (bool, string, error) {
			const ttl = 200 * time.Millisecond
			b := comparing{s.client(), time.Minute}
			var failed error
			gc := &stall{before: "del", during: func() { _, failed = b.lock(ctx, "door", time.Second) }}
			a := comparing{s.client(gc), ttl}
			mine, err := a.lock(ctx, "door", time.Second)
			if err != nil {
				return false, "", err
			}
			if err := errors.Join(a.unlock(ctx, "door", mine), failed); err != nil {
				return false, "", err
			}
			_, err = comparing{s.client(), time.Minute}.lock(ctx, "door", time.Second) // and B has not unlocked
			return err == nil, "A compares, stops until its lease has ended and B has the lock, and deletes it: C is in beside B", nil
		},
		ours: lateUnlock, // a release is one script, so the stop can only be before it
	}},
}
