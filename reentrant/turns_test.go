package reentrant

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// contest is clients that take one lock again and again.
type contest struct {
	tries bool // a goroutine of each client tries to take the lock beside its Lock

	mu        sync.Mutex
	grants    []int         // by client
	overtaken []int         // most grants of others in one wait, by client
	silence   time.Duration // longest time in which a client that waits asked nothing
}

// run has n clients take the lock again and again, until there were so many grants.
func (c *contest) run(t *testing.T, v *redistest.Virtual, n, grants int, hold time.Duration, st settings.Lock) {
	c.grants, c.overtaken = make([]int, n), make([]int, n)
	all := 0
	var g sync.WaitGroup
	for i := range n {
		asks := &asks{}
		rdb := v.Client()
		rdb.AddHook(asks)
		f := managerOn(t, rdb, false)
		over := make(chan struct{})
		if c.tries {
			g.Go(func() {
				tryEvery(t, f.newMutex("x", new(settings.Default)), time.Duration(5+20*i)*time.Millisecond, over)
			})
		}
		asks.lease = st.Lease
		g.Go(func() {
			defer close(over)
			for {
				c.mu.Lock()
				before, enough := all, all >= grants
				c.mu.Unlock()
				if enough {
					return
				}
				asks.begin()
				h, err := f.newMutex("x", new(st)).Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				silence := asks.end()
				c.mu.Lock()
				c.overtaken[i], c.silence = max(c.overtaken[i], all-before), max(c.silence, silence)
				all++
				c.grants[i]++
				c.mu.Unlock()
				time.Sleep(hold)
				assert.NoError(t, h.Unlock(context.Background()))
				if c.tries {
					time.Sleep(rand.N(200 * time.Millisecond)) // the lock is free then, but for those that try
				}
			}
		})
	}
	g.Wait()
}

// tryEvery takes the lock if it is free, and releases it immediately, until over.
func tryEvery(t *testing.T, m *Mutex, every time.Duration, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(every):
		}
		if h, err := m.TryLock(context.Background()); err == nil {
			assert.NoError(t, h.Unlock(context.Background()))
		}
	}
}

// asks is a hook that measures the time between two commands that ask for the lock with that lease.
type asks struct {
	lease   time.Duration
	mu      sync.Mutex
	waits   bool
	last    time.Time
	longest time.Duration
}

func (a *asks) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits, a.last, a.longest = true, time.Now(), 0
}

func (a *asks) end() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = false
	return a.longest
}

func (*asks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*asks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (a *asks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); lua.ScriptName([]string{fmt.Sprint(args[0]), fmt.Sprint(args[1])}) == "mutex/acquire" &&
			slices.Contains(args, any(a.lease.Milliseconds())) {
			a.mu.Lock()
			if a.waits {
				a.longest, a.last = max(a.longest, time.Since(a.last)), time.Now()
			}
			a.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// listen subscribes to every channel, so many times, until the test ends.
func listen(t *testing.T, v *redistest.Virtual, times int) {
	for range times {
		monitor := v.Client().PSubscribe(context.Background(), "*")
		_, err := monitor.Receive(context.Background())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, monitor.Close()) })
	}
}

// Redis counts subscribers. Clients take them for waiters, and find out that some are not. Until
// then a client may be passed over, but soon nobody is, and all get the lock equally often.
func TestClientsTakeTurnsWhoeverListens(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, idle := range []int{0, 3, 30} {
			for _, hold := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
				t.Run(fmt.Sprintf("%d clients, %d that only listen, %v", n, idle, hold), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						v := redistest.Bubble(t)
						listen(t, v, idle)
						var c contest
						c.run(t, v, n, 60*n, hold, settings.Default)
						t.Log(c.grants, c.overtaken)
						require.LessOrEqual(t, slices.Max(c.overtaken), 3*n)
						require.GreaterOrEqual(t, 2*slices.Min(c.grants), slices.Max(c.grants))
					})
				})
			}
		}
	}
}

// Forged messages make the client pause before it listens again. The pause does not put off the
// next poll.
func TestAFloodOfMessagesPutsOffNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		st := settings.Default
		st.PollInterval = 20 * time.Millisecond
		holder, err := managerOn(t, v.Client(), false).newMutex("x", new(st)).Lock(context.Background())
		require.NoError(t, err)
		forger, hook, rdb := v.Client(), &asks{lease: st.Lease}, v.Client()
		rdb.AddHook(hook)
		waiter, done := managerOn(t, rdb, false), make(chan error, 1)
		hook.begin()
		go func() {
			h, err := waiter.newMutex("x", new(st)).Lock(context.Background())
			if err == nil {
				err = h.Unlock(context.Background())
			}
			done <- err
		}()
		for range 2000 {
			time.Sleep(time.Millisecond)
			require.NoError(t, forger.Publish(context.Background(), key.ForMutex("x").Channel, "0").Err())
		}
		require.LessOrEqual(t, hook.end(), st.PollInterval)
		require.NoError(t, holder.Unlock(context.Background()))
		require.NoError(t, <-done)
	})
}

// However many messages come, and whatever a client takes their subscribers for, it asks once in
// each poll interval.
func TestAWaiterAsksOncePerPollInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		tries  bool
		grants int
		idle   []int
		holds  []time.Duration
	}{
		{grants: redistest.Rounds(100, 400), idle: []int{0, 30, 200}, holds: []time.Duration{5 * ms, 30 * ms}},
		{tries: true, grants: redistest.Rounds(50, 200), idle: []int{0, 30}, holds: []time.Duration{0, 5 * ms}},
	} {
		for _, idle := range c.idle {
			for _, hold := range c.holds {
				t.Run(fmt.Sprintf("%d that only listen, %v, tries %v", idle, hold, c.tries), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						v := redistest.Bubble(t)
						listen(t, v, idle)
						st := settings.Default
						st.PollInterval, st.Lease = 50*ms, 7777*ms
						all := contest{tries: c.tries}
						all.run(t, v, 2, c.grants, hold, st)
						require.LessOrEqual(t, all.silence, st.PollInterval)
					})
				})
			}
		}
	}
}
