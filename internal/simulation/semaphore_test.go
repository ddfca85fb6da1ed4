package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/workload"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/semaphore"
)

// limit is what every program says, so that permits of two do not fit twice.
const limit = 3

var permitKeys = key.ForSemaphore(name)

var permits = primitive{
	of: func(c *redlatch.Client, a *workload.Actor) workload.Lock {
		return workload.Permits(c.Semaphore(a.Name, limit, redlatch.WithWaitNotice(a.Waits)))
	},
	stays: func(key string) bool { return key == permitKeys.Permits },
	outlives: func(s schedule) time.Duration { // or a queue in which all died
		return max(s.lease, time.Minute+10*s.heartbeat)
	},
	linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.Permits(limit))
	},
	units: limit, resizes: []int{1, 2, limit, 5},
	keys: []string{permitKeys.Permits, permitKeys.Queue, permitKeys.Alive, permitKeys.Holders},
	commands: map[string]func(cmd []string) bool{
		"acquire": runs("semaphore/acquire"),
		"release": runs("semaphore/release"),
		"beat":    runs("semaphore/beat"),
		"resize":  runs("semaphore/resize"),
		"renewal": runs("semaphore/renew"),
	},
	grants: []string{"acquire"},
	idle: func(ctx context.Context, w *world, c *redlatch.Client) error {
		if err := wholeAgain(ctx, c.Semaphore(name, limit)); err != nil {
			return err
		}
		stored, err := w.server.Server.ZMembers(permitKeys.Permits)
		if slices.Sort(stored); !slices.Equal(stored, []string{"declared", "limit"}) {
			return fmt.Errorf("permits are left: %q, %v", stored, err)
		}
		return nil
	},
}

// wholeAgain takes all units there are, which is all that can be had, and gives them
// back.
func wholeAgain(ctx context.Context, s *semaphore.Semaphore) error {
	info, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	var held []*semaphore.Permit
	left := info.Limit
	if left == 0 { // nobody has used it, or it was forgotten
		left = limit
	}
	for left > 0 {
		n := min(left, limit)
		p, err := s.Acquire(ctx, n)
		if err != nil {
			return fmt.Errorf("units are gone: %d of %d missing (%d in use, %d waiting): %w", left, info.Limit, info.InUse, info.Waiting, err)
		}
		held = append(held, p)
		left -= n
	}
	if p, err := s.TryAcquire(ctx, 1); !errors.Is(err, lockerr.ErrNotAcquired) {
		return fmt.Errorf("there is more than the limit of %d: %v, %w", info.Limit, p, err)
	}
	for _, p := range held {
		if err := p.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}
