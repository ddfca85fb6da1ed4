package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/semaphore"
)

// Whole takes all units of a semaphore that nobody uses any more, and releases them. It returns an
// error if some units are lost, or if there are more than the limit. said is the limit that
// programs request. It counts if Redis knows no limit.
func Whole(ctx context.Context, s *semaphore.Semaphore, said int) error {
	info, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	limit := info.Limit
	if limit == 0 {
		limit = said
	}
	var held []*semaphore.Permit
	for left := limit; left > 0; left -= said { // nobody may request more units at once than said
		p, err := s.Acquire(ctx, min(left, said))
		if err != nil {
			return fmt.Errorf("%d of %d units are gone (%d in use, %d waiting): %w", left, limit, info.InUse, info.Waiting, err)
		}
		held = append(held, p)
	}
	switch p, err := s.TryAcquire(ctx, 1); {
	case err == nil:
		return errors.Join(fmt.Errorf("there is more than the limit of %d", limit), p.Release(ctx))
	case !errors.Is(err, lockerr.ErrNotAcquired):
		return err
	}
	for _, p := range held {
		if err := p.Release(ctx); err != nil && !errors.Is(err, lockerr.ErrIndeterminate) && !errors.Is(err, lockerr.ErrUnavailable) {
			return err // else the client releases it in the background
		}
	}
	return nil
}
