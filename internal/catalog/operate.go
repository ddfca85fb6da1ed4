package catalog

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/lockerr"
)

// anyLimit stands for the limit that programs pass, where it is not compared.
const anyLimit = 1

// Release takes the mutex name, or a permit of the semaphore name, away from the holder id. It
// reports false if id has neither of them.
func (c *Catalog) Release(ctx context.Context, name, id string) (bool, error) {
	if id == "" { // ForceRelease would end whichever holder there is
		return false, &lockerr.ConfigError{Setting: "holder", Value: id, Reason: "must not be empty"}
	}
	ended, err := c.locks.Mutex(name).ForceRelease(ctx, id)
	if err == nil && ended != "" {
		return true, nil
	}
	if err != nil && !errors.Is(err, lockerr.ErrNotAcquired) { // otherwise, somebody else has the mutex
		return false, err
	}
	units, err := c.locks.Semaphore(name, anyLimit).ForceRelease(ctx, id)
	return units > 0, err
}

// RemoveWaiter removes the waiter id from the queue of the fair mutex or the semaphore name. It
// reports false if no such waiter is there.
func (c *Catalog) RemoveWaiter(ctx context.Context, name, id string) (bool, error) {
	removed, err := c.locks.FairMutex(name).RemoveWaiter(ctx, id)
	if err == nil && !removed {
		removed, err = c.locks.Semaphore(name, anyLimit).RemoveWaiter(ctx, id)
	}
	return removed, err
}

// Resize changes the limit of the semaphore name for all programs, which go on to pass their own
// limit. It returns the limit before, or 0 if nobody has used the semaphore lately. Then there is
// no limit to change.
func (c *Catalog) Resize(ctx context.Context, name string, limit int) (before int, err error) {
	info, err := c.locks.Semaphore(name, limit).Inspect(ctx)
	if err != nil || info.Limit == 0 {
		return 0, err
	}
	declared := info.Declared
	if declared == 0 {
		declared = info.Limit
	}
	return c.locks.Semaphore(name, declared).Resize(ctx, limit)
}
