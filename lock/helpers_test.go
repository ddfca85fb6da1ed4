package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// waitTimeout is for tests of waits that end by themselves.
const waitTimeout = 2 * time.Second

// pausesAfter delays the return of the first call of a script, after its answer has come.
type pausesAfter struct {
	script string
	delay  time.Duration
	times  atomic.Int64
}

func (h *pausesAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *pausesAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(h, next)
}

func (h *pausesAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if stage.ScriptOf(cmd) == h.script && h.times.Add(-1) >= 0 {
			time.Sleep(h.delay)
		}
		return err
	}
}

// collector drops holds of a lock of its own. When one of them has been reported, the clean-ups of
// earlier garbage have run or are about to.
func (g *garbage) collector() {
	g.Helper()
	for range 3 {
		name := redistest.Name(g)
		stage.Drop(g, context.Background(), g.locks.Mutex(name, forever))
		g.log.Collected(g, name)
	}
}

// forever is for a hold that must not be lost before it is collected, because a lost hold is not
// reported.
var forever = redlatch.WithLease(time.Hour)

type garbage struct {
	*testing.T
	log          stage.Records
	locks, other *redlatch.Client
}

func newGarbage(t *testing.T) *garbage {
	s := redistest.Shared(t)
	return newGarbageOn(t, s, s.Client(t))
}

func newGarbageOn(t *testing.T, s *redistest.Server, rdb *redis.Client) *garbage {
	g := &garbage{T: t, log: stage.NewRecords()}
	g.locks = stage.LocksOn(t, rdb, g.log.Option(), redlatch.WithLease(5*time.Second), redlatch.WithRenewInterval(20*time.Millisecond))
	g.other = stage.LocksOn(t, s.Client(t))
	return g
}

// gets asserts that another client gets the lock at the end.
func (g *garbage) gets(name string) {
	g.Helper()
	h := stage.MustLock(g, context.Background(), g.other.Mutex(name))
	require.NoError(g, h.Unlock(context.Background()))
}

// renewals observes the renewals that one go-redis client sends.
type renewals struct {
	mu   sync.Mutex
	sent int             // renewed locks, in all batches together
	over map[string]bool // acquisitions that were unlocked
	late []string        // renewed, or still in a renewal, after that
	all  atomic.Int64    // commands of any kind
}

func (r *renewals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *renewals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(r, next)
}

func (r *renewals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.all.Add(1)
		ids := renewedBy(cmd.Args())
		if len(ids) == 0 {
			return next(ctx, cmd)
		}
		r.look(ids)
		time.Sleep(rand.N(time.Millisecond)) // in flight while others unlock
		err := next(ctx, cmd)
		if ctx.Err() == nil { // else its caller left it without an answer, and nobody can wait for that
			r.look(ids)
		}
		return err
	}
}

func (r *renewals) look(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent += len(ids)
	for _, id := range ids {
		if r.over[id] {
			r.late = append(r.late, id)
		}
	}
}

func (r *renewals) unlocked(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over[id] = true
}

// renewedBy returns the acquisitions that a command renews. The renewal is the only script with two
// arguments for each key.
func renewedBy(args []any) (ids []string) {
	if name, _ := args[0].(string); !strings.HasPrefix(strings.ToLower(name), "eval") {
		return nil
	}
	keys := redistest.KeyCount(args)
	if len(args) != 3+3*keys {
		return nil
	}
	for i := range keys {
		ids = append(ids, fmt.Sprint(args[3+keys+2*i]))
	}
	return ids
}
