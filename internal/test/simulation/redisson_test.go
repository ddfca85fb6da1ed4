package simulation_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lockerr"
)

// redissonLock does what an RFencedLock of Redisson does (verify/interop/dialogue/fenced.txt),
// except for the latch of an unlock, which affects nobody else. An RLock does the same but counts
// no token, and without the token nobody could know the order of the grants. Each acquire has a
// thread of its own. redissonLock polls often instead of waiting for messages, so it gets ahead of
// others more often.
type redissonLock struct {
	rdb    redis.UniversalClient
	key    key.Mutex
	client string
	lease  time.Duration
	thread int
}

const (
	redissonTakes = `
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('incr', KEYS[2])
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return {-1, redis.call('get', KEYS[2])}
end
return {redis.call('pttl', KEYS[1]), '0'}`
	redissonGives = `
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1`
	redissonLooks = 7 * time.Millisecond
)

func (l *redissonLock) Lock(ctx context.Context) (workload.Hold, error) {
	l.thread++
	h := &redissonHold{l: l, id: fmt.Sprintf("%s:%d", l.client, l.thread)}
	for {
		sent := time.Now()
		answer, err := l.rdb.Eval(ctx, redissonTakes, []string{l.key.Lock, l.key.Fence}, l.lease.Milliseconds(), h.id).Slice()
		if err != nil {
			return nil, err
		}
		if answer[0] == int64(-1) {
			h.until = sent.Add(l.lease)
			_, err = fmt.Sscan(answer[1].(string), &h.fence)
			return h, err
		}
		select {
		case <-time.After(redissonLooks):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryLock is not used in any plan; see simple.
func (*redissonLock) TryLock(context.Context) (workload.Hold, error) { panic("nobody tries") }

type redissonHold struct {
	l     *redissonLock
	id    string
	fence int64
	until time.Time
}

func (h *redissonHold) ID() string              { return h.id }
func (h *redissonHold) Fence() int64            { return h.fence }
func (h *redissonHold) TrustedUntil() time.Time { return h.until }
func (*redissonHold) Lost() <-chan struct{}     { return nil } // Redisson does not notify of a loss
func (h *redissonHold) Unlock(ctx context.Context) error {
	was, err := h.l.rdb.Eval(ctx, redissonGives, []string{h.l.key.Lock, h.l.key.Channel}, h.id).Int()
	if err == nil && was == 0 {
		return lockerr.ErrNotHeld
	}
	return err
}
