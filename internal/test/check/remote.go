package check

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Remote is a resource that processes share. It is on a Redis without faults, not on the Redis of
// the locks.
type Remote struct {
	rdb     redis.UniversalClient
	key     string
	checked bool
}

// NewRemote returns the resource with a key. checked says whether it checks fences.
func NewRemote(rdb redis.UniversalClient, key string, checked bool) *Remote {
	return &Remote{rdb: rdb, key: key, checked: checked}
}

// touch reads or writes a resource. KEYS[1] is the resource. ARGV has the fence, 1 if checked, and
// the value of a write. The result is {1 if the access was allowed, the counter}.
const touch = `
local fence, checked, value = ARGV[1], ARGV[2] == '1', ARGV[3]
local highest = redis.call('HGET', KEYS[1], 'highest') or '0'
local stale = tonumber(fence) < tonumber(highest)
if stale and checked then
  redis.call('HINCRBY', KEYS[1], 'rejected', 1)
  return {0, 0}
end
if not stale then
  redis.call('HSET', KEYS[1], 'highest', fence)
end
if value then
  redis.call('HSET', KEYS[1], 'value', value)
  redis.call('HINCRBY', KEYS[1], 'accepted', 1)
  if stale then
    redis.call('HINCRBY', KEYS[1], 'stale', 1)
  end
end
return {1, tonumber(redis.call('HGET', KEYS[1], 'value') or '0')}
`

// Read implements Resource.
func (r *Remote) Read(ctx context.Context, fence int64) (int64, error) { return r.touch(ctx, fence) }

// Write implements Resource.
func (r *Remote) Write(ctx context.Context, fence, value int64) error {
	_, err := r.touch(ctx, fence, value)
	return err
}

func (r *Remote) touch(ctx context.Context, fence int64, value ...any) (int64, error) {
	checked := 0
	if r.checked {
		checked = 1
	}
	args := append([]any{fence, checked}, value...)
	answer, err := r.rdb.Eval(ctx, touch, []string{r.key}, args...).Int64Slice()
	switch {
	case err != nil:
		return 0, err
	case answer[0] == 0:
		return 0, ErrStale
	}
	return answer[1], nil
}

// Audit implements Resource.
func (r *Remote) Audit(ctx context.Context) (Audit, error) {
	var a struct {
		Value    int64 `redis:"value"`
		Accepted int64 `redis:"accepted"`
		Rejected int64 `redis:"rejected"`
		Stale    int64 `redis:"stale"`
	}
	err := r.rdb.HGetAll(ctx, r.key).Scan(&a)
	return Audit(a), err
}
