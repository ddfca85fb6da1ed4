package session

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// FenceLife returns for how long Redis is to keep the fence of a lock that it grants for a lease:
// for the retention, and at least for two leases. Lists find locks by their fences. 0 means for
// ever.
func (s *Session) FenceLife(lease time.Duration) time.Duration {
	if s.FenceRetention == 0 {
		return 0
	}
	return max(s.FenceRetention, 2*lease)
}

// keepFences has Redis keep the fences of locks that were renewed. It sends a command in each
// quarter of the life of a fence, so it may fail twice: a renewal comes at least three times in a
// lease. It does not block, and no renewal depends on it: while a slot migrates, Redis may have the
// lock and not the fence.
func (s *Session) keepFences(batch []watchdog.Renewal, answers []watchdog.Result) {
	var fences []any
	var life time.Duration
	for i, r := range batch[:min(len(batch), len(answers))] {
		quarter := s.FenceLife(r.Lease) / 4
		if answers[i] == watchdog.Renewed && quarter > 0 && r.Asked/quarter != r.Extended/quarter {
			fences = append(fences, key.ForMutex(r.Key).Args.Fence)
			life = max(life, 4*quarter)
		}
	}
	if len(fences) > 0 {
		s.sendKeepFences(batch[0].Key, life, fences)
	}
}

// KeepFenceFor has Redis keep the fence of a lock for as long as Redis keeps the lock, with nobody
// who renews it. Of the life of the fence, a quarter is left, unless keepFences failed more than
// once. So a shorter time needs no command. KeepFenceFor does not block, and tries once.
func (s *Session) KeepFenceFor(lockKey string, d time.Duration, fence any) {
	if s.FenceRetention > 0 && d > s.FenceRetention/4 {
		s.sendKeepFences(lockKey, d, []any{fence})
	}
}

// sendKeepFences has Redis keep fences of one slot, which is that of the key.
func (s *Session) sendKeepFences(lockKey string, life time.Duration, fences []any) {
	s.tasks.start(func(ctx context.Context) {
		const limit = time.Second
		to := s.serverFor(lockKey)
		_, _ = runAttempt(ctx, s, lockKey, to, s.attempt(ctx, to, limit, Operation{}), 0, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (int, error) {
			return lua.KeepFences(ctx, rdb, fences, life)
		})
	})
}
