package reentrant

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// managerOn makes a client in the bubble. It ends with the test.
func managerOn(t *testing.T, rdb *redis.Client, cluster bool) *manager {
	t.Helper()
	s := session.New(session.Config{Redis: rdb, Deployment: node.Deployment{PubSub: node.SubscriberOf(rdb)}, Log: slog.Default()})
	if cluster {
		s.FoundCluster()
	}
	f := newManager(mutex.NewRegistry(s))
	t.Cleanup(func() {
		s.BeginClose()
		_ = acquisition.CloseAll(context.Background(), f.registry.Held())
		_ = s.FinishClose(context.Background())
	})
	return f
}

// away makes every command take so long to reach the server.
type away time.Duration

func (a away) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(a))
		return next(ctx, cmds)
	}
}
func (a away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(a))
		return next(ctx, cmd)
	}
}

const holdTime = 3007 * time.Microsecond // no question of a waiter comes just when it is over

// take has the client take so many turns, or turns until the context ends.
func take(t *testing.T, ctx context.Context, f *manager, turns int) (taken int) {
	t.Helper()
	for ; taken < turns && ctx.Err() == nil; taken++ {
		h, err := f.newMutex("x", new(settings.Default)).Lock(context.Background())
		require.NoError(t, err)
		time.Sleep(holdTime)
		require.NoError(t, h.Unlock(context.Background()))
	}
	return taken
}

// flap subscribes to every channel again and again, until the test ends.
func flap(t *testing.T, rdb *redis.Client, flaps time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			monitor := rdb.PSubscribe(context.Background(), "*")
			_, err := monitor.Receive(context.Background())
			assert.NoError(t, err)
			time.Sleep(flaps)
			assert.NoError(t, monitor.Close())
			time.Sleep(flaps)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

// A client that takes turns alone spends its time on nothing but its holds, whoever
// listens: commands take no time here.
func TestYielding_NobodyWaitsForTheLock(t *testing.T) {
	const turns = 1000
	cases := map[string]struct {
		monitored, cluster bool
		flaps              time.Duration // another subscriber is there, and then is not, for so long each; 0: there is none
		yields             time.Duration // in all
	}{
		"single server":                    {false, false, 0, 0},
		"PSUBSCRIBE *":                     {true, false, 0, 320 * time.Millisecond},
		"cluster":                          {false, true, 0, 90 * time.Millisecond},
		"cluster, and PSUBSCRIBE":          {true, true, 0, 320 * time.Millisecond},
		"PSUBSCRIBE * that comes and goes": {false, false, 20 * time.Millisecond, 400 * time.Millisecond},
		"for longer than it is kept":       {false, false, 150 * time.Millisecond, 400 * time.Millisecond},
		"and rarely":                       {false, false, 400 * time.Millisecond, 400 * time.Millisecond},
		"beside another":                   {true, false, 20 * time.Millisecond, 400 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				if c.monitored {
					monitor := v.Client().PSubscribe(context.Background(), "*")
					_, err := monitor.Receive(context.Background())
					require.NoError(t, err)
					defer func() { require.NoError(t, monitor.Close()) }()
				}
				if c.flaps > 0 {
					flap(t, v.Client(), c.flaps)
				}
				f := managerOn(t, v.Client(), c.cluster)
				begin := time.Now()
				take(t, context.Background(), f, turns)
				require.LessOrEqual(t, time.Since(begin)-turns*holdTime, c.yields)
				time.Sleep(longestYield)
				synctest.Wait()
				require.Zero(t, f.registry.Len(), "what is known of a name goes when it is out of use")
			})
		})
	}
}

// A waiter of another client gets the lock after a bounded number of turns of a
// client that wants it all the time.
func TestYielding_AWaiterGetsTheLock(t *testing.T) {
	cases := map[string]struct {
		monitored, cluster bool
		way                time.Duration
		turns              int
	}{
		"single server":      {false, false, 0, 2},
		"single server, far": {false, false, 20 * time.Millisecond, 3500},
		"PSUBSCRIBE *":       {true, false, 0, 60}, // the series of yields was spent on the monitor: a probe helps
		"PSUBSCRIBE *, far":  {true, false, 20 * time.Millisecond, 3500},
		"cluster":            {false, true, 0, 60},
		"cluster, far":       {false, true, 2 * time.Millisecond, 250},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				if c.monitored {
					monitor := v.Client().PSubscribe(context.Background(), "*")
					_, err := monitor.Receive(context.Background())
					require.NoError(t, err)
					defer func() { require.NoError(t, monitor.Close()) }()
				}
				near := managerOn(t, v.Client(), c.cluster)
				rdb := v.Client()
				rdb.AddHook(away(c.way))
				far := managerOn(t, rdb, c.cluster)
				take(t, context.Background(), near, 500) // nobody has come for long

				ctx, stop := context.WithCancel(context.Background())
				var turns atomic.Int64
				done := make(chan struct{})
				go func() {
					defer close(done)
					for ctx.Err() == nil {
						turns.Add(int64(take(t, ctx, near, 1)))
					}
				}()
				for range 5 {
					before := turns.Load()
					h, err := far.newMutex("x", new(settings.Default)).Lock(context.Background())
					require.NoError(t, err)
					assert.LessOrEqual(t, turns.Load()-before, int64(c.turns))
					require.NoError(t, h.Unlock(context.Background()))
				}
				stop()
				<-done
			})
		})
	}
}

// Goroutines of one client take the lock one after the other, each from Redis, while
// the client still listens to releases: nobody else does, so it does not yield.
func TestYielding_NobodyYieldsToItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		one, other := managerOn(t, v.Client(), false), managerOn(t, v.Client(), false)
		first, err := other.newMutex("x", new(settings.Default)).Lock(context.Background())
		require.NoError(t, err)
		st := settings.Default
		st.LocalHandoffTime = 0
		const waiters = 20
		done := make(chan time.Time, waiters)
		for range waiters {
			go func() {
				h, err := one.newMutex("x", new(st)).Lock(context.Background())
				if assert.NoError(t, err) {
					assert.NoError(t, h.Unlock(context.Background()))
				}
				done <- time.Now()
			}()
		}
		synctest.Wait()
		require.NoError(t, first.Unlock(context.Background()))
		freed := time.Now()
		for range waiters {
			assert.Zero(t, (<-done).Sub(freed))
		}
	})
}
