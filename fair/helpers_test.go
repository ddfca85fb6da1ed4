package fair_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
)

// claim is a hold or a permit.
type claim interface {
	Trusted() bool
	release(t *testing.T)
}

// locker is one way to lock a name.
type locker func(ctx context.Context, c *redlatch.Client, name string) (claim, error)

type lockClaim struct{ lockHold }

type lockHold interface {
	Trusted() bool
	Unlock(ctx context.Context) error
}

func (c lockClaim) release(t *testing.T) { require.NoError(t, c.Unlock(t.Context())) }

type permitClaim struct{ permitHold }

type permitHold interface {
	Trusted() bool
	Release(ctx context.Context) error
}

func (c permitClaim) release(t *testing.T) { require.NoError(t, c.Release(t.Context())) }

func byMutex(ctx context.Context, c *redlatch.Client, name string) (claim, error) {
	h, err := c.Mutex(name).Lock(ctx)
	return lockClaim{h}, err
}

func byFairMutex(ctx context.Context, c *redlatch.Client, name string) (claim, error) {
	h, err := c.FairMutex(name).Lock(ctx)
	return lockClaim{h}, err
}

func bySemaphore(ctx context.Context, c *redlatch.Client, name string) (claim, error) {
	p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
	return permitClaim{p}, err
}

// requestFor is the id in a command that requests a lock or a place of that name.
func requestFor(cmd []string, name string) string {
	switch lua.ScriptName(cmd) {
	case "mutex/acquire", "fair/join", "semaphore/acquire":
	default:
		return ""
	}
	keys, _ := strconv.Atoi(cmd[2])
	id, _, _ := strings.Cut(cmd[3+keys], " ")
	if !strings.Contains(cmd[3], name) {
		return ""
	}
	return id
}

// queueLockers are the ways to lock a name with a queue in Redis.
var queueLockers = map[string]locker{"fair mutex": byFairMutex, "semaphore": bySemaphore}

// deadWaiters puts waiters into the queue of a fair mutex whose heartbeat and grace have ended.
func deadWaiters(t *testing.T, rdb *redis.Client, name string, n int) {
	t.Helper()
	died := time.Now().Add(-time.Second)
	queued, beats := make([]redis.Z, n), make([]redis.Z, n)
	for i := range n {
		member := fmt.Sprintf("22222222-2222-2222-2222-222222222222:%d 1 5000 30000 dead", i+1)
		queued[i] = redis.Z{Score: float64(died.UnixMicro() + int64(i)), Member: member}
		beats[i] = redis.Z{Score: float64(died.UnixMilli()), Member: member}
	}
	k := key.ForMutex(name)
	require.NoError(t, rdb.ZAdd(t.Context(), k.Queue, queued...).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), k.Alive, append(beats, redis.Z{Score: float64(died.UnixMilli()), Member: "grace"})...).Err())
}
