package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tutorials have taught this since before SET had NX. The value is the instant at which the lock
// ends, by the clock of the client. A client that finds this instant in the past takes the lock
// with GETSET. It has the lock if GETSET returns the value that it had read.
type timestamped struct {
	rdb   *redis.Client
	lease time.Duration
	now   func() time.Time
}

func (l timestamped) end() string {
	return strconv.FormatInt(l.now().Add(l.lease).UnixNano(), 10)
}

func (l timestamped) isOver(value string) bool {
	end, _ := strconv.ParseInt(value, 10, 64)
	return end < l.now().UnixNano()
}

func (l timestamped) try(ctx context.Context, name string) (value string, err error) {
	value = l.end()
	if ok, err := l.rdb.SetNX(ctx, name, value, 0).Result(); ok || err != nil {
		return value, err
	}
	stored, err := l.rdb.Get(ctx, name).Result()
	if err != nil || !l.isOver(stored) {
		return "", err
	}
	value = l.end()
	before, err := l.rdb.Do(ctx, "getset", name, value).Text()
	if err != nil || before != stored {
		return "", err
	}
	return value, nil
}

// unlock deletes the lock unless somebody else has taken it over.
func (l timestamped) unlock(ctx context.Context, name, value string) error {
	stored, err := l.rdb.Get(ctx, name).Result()
	if err != nil || stored != value {
		return err
	}
	return l.rdb.Del(ctx, name).Err()
}

var timestamps = recipe{
	name: "4. SETNX with a timestamp that GETSET takes over",
	flaws: []flaw{
		{
			name: "a client whose clock is ahead takes a lock that is held",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				a := timestamped{s.client(), 10 * time.Second, time.Now}
				b := timestamped{s.client(), 10 * time.Second, ahead}
				if mine, err := a.try(ctx, "door"); mine == "" || err != nil {
					return false, "", fmt.Errorf("the first client has no lock: %w", err)
				}
				theirs, err := b.try(ctx, "door")
				return theirs != "", "A has a lease of 10 s; B, whose clock is 20 s ahead, is in at once", err
			},
			ours: noClientClock,
		},
		{
			name: "a loser moves the end that the winner wrote",
			taught: func(ctx context.Context, s *stage) (bool, string, error) {
				long := timestamped{s.client(), 10 * time.Second, func() time.Time { return time.Now().Add(-time.Hour) }}
				if old, err := long.try(ctx, "door"); old == "" || err != nil { // of a client that crashed an hour ago
					return false, "", fmt.Errorf("no old lock: %w", err)
				}
				winner := timestamped{s.client(), 10 * time.Second, time.Now}
				var won string
				var failed error
				slow := &stall{before: "getset", during: func() { won, failed = winner.try(ctx, "door") }}
				loser := timestamped{s.client(slow), time.Hour, time.Now}
				lost, err := loser.try(ctx, "door")
				if err := errors.Join(err, failed); err != nil || won == "" || lost != "" {
					return false, "", fmt.Errorf("winner %q, loser %q: %w", won, lost, err)
				}
				if err := winner.unlock(ctx, "door", won); err != nil {
					return false, "", err
				}
				stored := s.client().Get(ctx, "door").Val()
				return stored != "", "the winner unlocks, does not know its own lock again, and all wait for the loser's hour", nil
			},
			ours: func(ctx context.Context, s *stage) (bool, string, error) {
				winner, errW := s.locks(10 * time.Second)
				loser, errL := s.locks(time.Hour)
				if err := errors.Join(errW, errL); err != nil {
					return false, "", err
				}
				h, err := winner.Mutex("door").Lock(ctx)
				if err != nil {
					return false, "", err
				}
				_, lost := loser.Mutex("door").TryLock(ctx)
				left := s.client().PTTL(ctx, "door").Val()
				if err := h.Unlock(ctx); err != nil {
					return false, "", err
				}
				return left > 10*time.Second || s.client().Exists(ctx, "door").Val() != 0, fmt.Sprintf("the loser gets %q, and changes nothing", lost), nil
			},
		},
	},
}

// ahead is a clock that is 20 s ahead.
func ahead() time.Time { return time.Now().Add(20 * time.Second) }

// noClientClock: there is no clock to set, because the server measures leases.
func noClientClock(ctx context.Context, s *stage) (bool, string, error) {
	a, errA := s.locks(10 * time.Second)
	b, errB := s.locks(10 * time.Second)
	if err := errors.Join(errA, errB); err != nil {
		return false, "", err
	}
	if _, err := a.Mutex("door").Lock(ctx); err != nil {
		return false, "", err
	}
	_, err := b.Mutex("door").TryLock(ctx)
	return err == nil, "no client sends its clock: the server measures leases", nil
}

// This is the variant with WATCH and MULTI. A client that finds the end in the past writes a new
// one, in a transaction that fails if somebody else did. It waits for as long as the caller says,
// and spreads its attempts by chance.
type watched struct{ timestamped }

func (l watched) lock(ctx context.Context, name string, timeout time.Duration) (value string, err error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond)))) {
		err = l.rdb.Watch(ctx, func(tx *redis.Tx) error {
			stored, err := tx.Get(ctx, name).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if stored != "" && !l.isOver(stored) {
				return errTimeout
			}
			value = l.end()
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, name, value, 0).Err() })
			return err
		}, name)
		if err == nil {
			return value, nil
		}
		if !errors.Is(err, errTimeout) && !errors.Is(err, redis.TxFailedErr) {
			return "", err
		}
	}
	return "", errTimeout
}

var watchedTimestamps = recipe{
	name: "4b. The same with WATCH and MULTI, a timeout, and tries that are spread by chance",
	flaws: []flaw{{
		name: "a client whose clock is ahead takes a lock that is held",
		taught: func(ctx context.Context, s *stage) (bool, string, error) {
			a := watched{timestamped{s.client(), 10 * time.Second, time.Now}}
			b := watched{timestamped{s.client(), 10 * time.Second, ahead}}
			if _, err := a.lock(ctx, "door", time.Second); err != nil {
				return false, "", err
			}
			_, err := b.lock(ctx, "door", time.Second)
			return err == nil, "A has a lease of 10 s; B, whose clock is 20 s ahead, is in at once", nil
		},
		ours: noClientClock,
	}},
}
