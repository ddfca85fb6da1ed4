package simulation_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// limit is the limit that every program requests. Permits of two units do not fit twice.
const limit = 3

var orders = key.ForSemaphore(name)

var permits = primitive{
	of: func(m *machine, name string, a *workload.Actor, options ...redlatch.LockOption) workload.Lock {
		return workload.Permits(m.client.Semaphore(name, limit, append(options, redlatch.WithWaitCallback(a.Waits))...))
	},
	force: func(ctx context.Context, m *machine, acquisition string) bool {
		units, _ := m.client.Semaphore(name, limit).ForceRelease(ctx, acquisition)
		return units > 0
	},
	queue: func(m *machine) queue { return m.client.Semaphore(name, limit) },
	stays: func(which string, names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return which == key.ForSemaphore(name).Permits })
	},
	outlives: outlivesAQueue,
	linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.Permits(limit))
	},
	whileLeasesEnd: func(ops []history.Op) error {
		return check.Linearizable(ops, check.Permits(limit))
	},
	units: limit, resizes: []int{1, 2, limit, 5},
	keys: []string{orders.Permits, orders.Queue, orders.Alive, orders.Holders},
	commands: map[string]func(cmd []string) bool{
		"acquire": runs("semaphore/acquire"),
		"release": runs("semaphore/release"),
		"beat":    runs("semaphore/beat"),
		"resize":  runs("semaphore/resize"),
		"renewal": runs("semaphore/renew"),
	},
	grants: []string{"acquire"},
	idle: func(ctx context.Context, w *world, c *redlatch.Client, name string) error {
		if err := workload.Whole(ctx, c.Semaphore(name, limit), limit); err != nil {
			return err
		}
		stored, err := w.server.Server.ZMembers(key.ForSemaphore(name).Permits)
		stored = slices.DeleteFunc(stored, func(member string) bool { return member == "resized" })
		if slices.Sort(stored); !slices.Equal(stored, []string{"declared", "limit"}) {
			return fmt.Errorf("permits are left: %q, %v", stored, err)
		}
		return nil
	},
}
