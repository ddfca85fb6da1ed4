//go:build topologies

package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: while a slot is stuck between two masters, no call of any primitive gives
// an answer that Redis contradicts.

// grip is a hold or a permit.
type grip struct {
	kind, name string
	id         string
	fence      int64 // 0: a permit
	trusted    func() bool
	release    func(context.Context) error
}

// stuck is a slot of two masters, whose keys are on either of them for a while.
type stuck struct {
	*migration
	tag   string // of all names
	next  atomic.Int64
	mu    sync.Mutex
	calls map[string]int   // by kind of call, and answer
	fence map[string]int64 // the last of each name
}

var stuckKinds = []string{"mutex", "fair", "permit"}

func (s *stuck) fresh(kind string) (name string) {
	return fmt.Sprintf("{%s}:%s:%d", s.tag, kind, s.next.Add(1))
}

// acquire waits for the lock, or only tries.
func (s *stuck) acquire(ctx context.Context, locks *redlatch.Client, kind, name string, try bool) (*grip, error) {
	if kind == "permit" {
		acquire := locks.Semaphore(name, 1).Acquire
		if try {
			acquire = locks.Semaphore(name, 1).TryAcquire
		}
		p, err := acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return &grip{kind, name, p.ID(), 0, p.Trusted, p.Release}, nil
	}
	acquire := locks.Mutex(name).Lock
	switch {
	case kind == "mutex" && try:
		acquire = locks.Mutex(name).TryLock
	case kind == "fair" && try:
		acquire = locks.FairMutex(name).TryLock
	case kind == "fair":
		acquire = locks.FairMutex(name).Lock
	}
	h, err := acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &grip{kind, name, h.ID(), h.Fence(), h.Trusted, h.Unlock}, nil
}

// has reports whether either master has the grant. The target answers for a slot that it imports
// only behind ASKING, and the source says ASK for a key that has moved.
func (s *stuck) has(g *grip) bool {
	ctx := context.Background()
	ask := []any{"HEXISTS", g.name, g.id}
	if g.kind == "permit" {
		ask = []any{"ZSCORE", key.ForSemaphore(g.name).Permits, g.id + "#1"}
	}
	for range 100 {
		pipe := s.target.Control().Pipeline()
		pipe.Do(ctx, "ASKING")
		there := pipe.Do(ctx, ask...)
		_, _ = pipe.Exec(ctx)
		here := s.source.Control().Do(ctx, ask...)
		if isThere(there) || isThere(here) {
			return true
		}
		if err := here.Err(); err == nil || errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "MOVED") {
			return false
		}
	}
	return assert.Fail(s.t, "neither master answers")
}

// isThere reports whether HEXISTS or ZSCORE found something.
func isThere(cmd *redis.Cmd) bool {
	found, err := cmd.Result()
	return err == nil && found != int64(0)
}

func (s *stuck) count(call, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call+": "+answer]++
}

func (s *stuck) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		n += c
	}
	return n
}

// granted checks a grant: Redis has it, and its fence is larger than all before.
func (s *stuck) granted(g *grip) {
	assert.True(s.t, s.has(g) || !g.trusted(), "%s: Redis does not have the grant", g.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.kind != "permit" {
		assert.Greater(s.t, g.fence, s.fence[g.name], g.name)
		s.fence[g.name] = g.fence
	}
}

// released releases a grant, and checks that it is gone from Redis.
func (s *stuck) released(ctx context.Context, g *grip) {
	if err := g.release(ctx); !assert.NoError(s.t, err, g.name) {
		s.count("release "+g.kind, "error")
		return
	}
	assert.False(s.t, s.has(g), "%s: Redis still has the grant", g.name)
	s.count("release "+g.kind, "released")
}

// noAnswer reports whether an error says that the client does not know.
func noAnswer(err error) bool {
	return errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrIndeterminate) || errors.Is(err, context.DeadlineExceeded)
}

// ask calls for a name that is held, or that nobody uses, and checks the answer.
func (s *stuck) ask(locks *redlatch.Client, kind, name string, held *grip) {
	try := rand.IntN(2) == 0
	call := map[bool]string{true: "try ", false: "wait for "}[try] + kind + map[bool]string{true: " that is held", false: " that is free"}[held != nil]
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	g, err := s.acquire(ctx, locks, kind, name, try)
	switch {
	case err == nil:
		assert.Nil(s.t, held, "%s is held, and was granted", name)
		s.count(call, "granted")
		s.granted(g)
		s.released(context.Background(), g)
	case noAnswer(err):
		s.count(call, "no answer")
	case errors.Is(err, redlatch.ErrNotAcquired):
		s.count(call, "held")
		if assert.NotNil(s.t, held, "%s is free: %v", name, err) {
			assert.True(s.t, held.trusted() && s.has(held), "%s is not held: %v", name, err)
		}
	default:
		assert.Fail(s.t, "an answer of another kind", "%s: %v", name, err)
	}
}

// split moves about half of the keys. All keys of every third name move, and none of every third.
func (s *stuck) split() {
	s.t.Helper()
	keys, err := s.source.Control().ClusterGetKeysInSlot(s.t.Context(), s.slot, 1<<20).Result()
	require.NoError(s.t, err)
	host, port, err := net.SplitHostPort(s.target.Addr())
	require.NoError(s.t, err)
	args := []any{"MIGRATE", host, port, "", 0, 10_000, "KEYS"}
	for _, k := range keys {
		var n int
		_, err := fmt.Sscan(strings.TrimRight(k[strings.LastIndex(k, ":")+1:], "}"), &n)
		require.NoError(s.t, err, k)
		if n%9 < 3 || n%9 < 6 && rand.IntN(2) == 0 { // the kinds take turns
			args = append(args, k)
		}
	}
	require.NoError(s.t, s.source.Control().Do(s.t.Context(), args...).Err())
	s.t.Logf("%d of %d keys moved", len(args)-7, len(keys))
}

// take acquires n names of each kind.
func (s *stuck) take(locks *redlatch.Client, n int) []*grip {
	s.t.Helper()
	grips := make([]*grip, n*len(stuckKinds))
	var all errgroup.Group
	all.SetLimit(64)
	for i := range grips {
		kind := stuckKinds[i%len(stuckKinds)]
		name := s.fresh(kind)
		all.Go(func() (err error) {
			grips[i], err = s.acquire(s.t.Context(), locks, kind, name, false)
			if err == nil {
				s.granted(grips[i])
			}
			return err
		})
	}
	require.NoError(s.t, all.Wait())
	return grips
}

// A migration is stuck for half a minute, and half of the keys have moved. Each answer of 10,000
// calls is checked against both masters. All calls that wait end well when it is over. With -short,
// it takes four seconds.
func TestNoAnswerIsFalseWhileAMigrationIsStuck(t *testing.T) {
	least, long := 10_000, 30*time.Second
	if testing.Short() {
		least, long = 500, 4*time.Second
	}
	c := redistest.StartCluster(t, 2, 0)
	names, slot := namesOfOneSlot(t, 1)
	s := &stuck{tag: names[0], calls: map[string]int{}, fence: map[string]int64{}}
	s.migration = &migration{t, slot, c.Nodes[0], c.Nodes[1]}
	sentAgain := &retries{}
	holder := stage.LocksOn(t, c.Client(t), redlatch.WithLease(2*time.Minute), redlatch.WithObserver(sentAgain))
	asker := stage.LocksOn(t, c.Client(t), redlatch.WithLease(2*time.Minute), redlatch.WithObserver(sentAgain))

	kept, leaving, left := s.take(holder, 300), s.take(holder, 600), s.take(holder, 200)
	busy, handed := s.take(holder, 100), s.take(holder, 50) // these have waiters
	for _, g := range left {                                // these leave fences behind
		s.released(t.Context(), g)
	}
	var waiters errgroup.Group
	wait := func(kind, name string) {
		waiters.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*stage.Guard)
			defer cancel()
			g, err := s.acquire(ctx, asker, kind, name, false)
			if err != nil {
				return fmt.Errorf("waiter of %s: %w", name, err)
			}
			s.granted(g)
			s.released(ctx, g)
			return nil
		})
	}
	for _, g := range slices.Concat(busy, handed) {
		if g.kind == "mutex" {
			wait("fair", g.name) // it is in the queue of the name, in Redis
		} else {
			wait(g.kind, g.name)
		}
	}
	for _, g := range busy {
		s.awaitWaiter(g)
	}
	s.calls = map[string]int{}
	s.migration = beginMigration(t, c, slot)
	s.split()
	for i := range 150 { // these begin to wait now
		wait(stuckKinds[i%3], s.fresh(stuckKinds[i%3]))
	}

	s.run(asker, slices.Concat(kept, busy), slices.Concat(leaving, handed), left, long)
	s.mu.Lock()
	for _, call := range slices.Sorted(maps.Keys(s.calls)) {
		t.Logf("%6d %s", s.calls[call], call)
	}
	s.mu.Unlock()
	t.Logf("%d calls, %d commands that no master could run", s.total(), sentAgain.n.Load())
	require.GreaterOrEqual(t, s.total(), least)
	require.NotZero(t, sentAgain.n.Load(), "the migration was in the way")

	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
	defer cancel()
	for _, g := range slices.Concat(kept, busy) {
		require.True(t, g.trusted(), g.name)
		require.NoError(t, g.release(ctx), g.name)
	}
	require.NoError(t, waiters.Wait(), "all calls end well")
	for _, g := range slices.Concat(kept, busy, leaving, left, handed) {
		again, err := s.acquire(ctx, asker, g.kind, g.name, false)
		require.NoError(t, err, g.name)
		if g.kind != "permit" {
			require.Greater(t, again.fence, s.fence[g.name], g.name)
		}
		require.NoError(t, again.release(ctx))
	}
}

// awaitWaiter waits until somebody waits for what is held.
func (s *stuck) awaitWaiter(g *grip) {
	s.t.Helper()
	queue := key.ForMutex(g.name).Queue
	if g.kind == "permit" {
		queue = key.ForSemaphore(g.name).Queue
	}
	require.Eventually(s.t, func() bool { return s.source.Control().ZCard(s.t.Context(), queue).Val() > 0 }, stage.Guard, time.Millisecond)
}

// run makes calls for so long. Each goroutine has free names of its own, so nobody else has them.
func (s *stuck) run(asker *redlatch.Client, held, leaving, left []*grip, long time.Duration) {
	end := time.Now().Add(long)
	var all errgroup.Group
	for i := range 100 {
		all.Go(func() error {
			mine := map[string]string{}
			for time.Now().Before(end) && !s.t.Failed() {
				g := held[rand.IntN(len(held))]
				s.ask(asker, g.kind, g.name, g)
				s.ask(asker, left[i].kind, left[i].name, nil) // its fence is in Redis
				kind := stuckKinds[rand.IntN(len(stuckKinds))]
				if mine[kind] == "" {
					mine[kind] = s.fresh(kind)
				}
				s.ask(asker, kind, mine[kind], nil)
			}
			return nil
		})
	}
	for _, g := range leaving {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), stage.Guard)
			defer cancel()
			s.released(ctx, g)
			return nil
		})
		time.Sleep(long / time.Duration(len(leaving)+1))
	}
	_ = all.Wait()
}
