package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/workload"
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
	whileLeasesEnd: func(ops []history.Op) error {
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
	// A copy of a resize, too, changes what another has set meanwhile.
	grants: []string{"acquire", "resize"},
	idle: func(ctx context.Context, w *world, c *redlatch.Client) error {
		if err := workload.Whole(ctx, c.Semaphore(name, limit), limit); err != nil {
			return err
		}
		stored, err := w.server.Server.ZMembers(permitKeys.Permits)
		if slices.Sort(stored); !slices.Equal(stored, []string{"declared", "limit"}) {
			return fmt.Errorf("permits are left: %q, %v", stored, err)
		}
		return nil
	},
}
