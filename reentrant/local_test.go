package reentrant

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// A waiter asks when the holder's lease ends, because no message says so, and within the poll
// bound.
func TestAWaiterSleepsToTheEndOfTheLeaseWithinThePollBound(t *testing.T) {
	const poll = time.Second
	p := poller{request: &request{Request: mutex.Request{Settings: &settings.Lock{PollInterval: poll}}}}
	for remaining, sleeps := range map[time.Duration]time.Duration{
		0: time.Millisecond, 1: time.Millisecond + 1, 500 * time.Millisecond: 501 * time.Millisecond,
	} {
		require.Equal(t, sleeps, p.sleepTime(remaining))
	}
	for range 1000 {
		for _, remaining := range []time.Duration{-1, time.Hour} {
			d := p.sleepTime(remaining)
			require.LessOrEqual(t, d, poll)
			require.GreaterOrEqual(t, d, poll*4/5)
		}
	}
}

// Wake-ups that keep coming while one client has the lock are a flood. They count more rarely.
func TestOnlyWakeUpsUnderTheSameHolderAreAFlood(t *testing.T) {
	var p poller
	flood := func() (pause time.Duration) {
		for range 1000 {
			p.woken = true
			pause = p.throttlePause("a:1")
		}
		return pause
	}
	require.Positive(t, flood())
	require.Zero(t, p.throttlePause("b:1"), "the lock went on")
	require.Equal(t, "b:1", p.lastHolder)
	for _, pause := range []time.Duration{0, 0, time.Millisecond} { // two may come by chance
		require.Equal(t, pause, p.throttlePause("b:1"))
	}
	require.Positive(t, flood())
	p.woken = false
	require.Zero(t, p.throttlePause("a:1"), "the waiter woke by itself")
	p.woken = true
	require.Zero(t, p.throttlePause("a:1"), "the count begins anew")
}

// polling makes the poller of a Lock that has the local lock.
func polling(t *testing.T, f *manager) *poller {
	t.Helper()
	m := f.newMutex("x", new(settings.Default))
	w := new(request)
	require.NoError(t, m.core.Begin(t.Context(), &w.Request))
	m.join(w)
	p := &poller{request: w, warning: w.NewSelfDeadlockWarning()}
	t.Cleanup(func() { p.stop(); p.warning.Stop(); w.Close() })
	return p
}

func TestAPollerSleepsUntilAWakeUpOrTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polling(t, managerOn(t, redistest.Bubble(t).Client(), false))
		wakes := make(chan struct{}, 1)
		for _, woken := range []bool{true, false, true, true, false} {
			begun, slept := time.Now(), time.Second
			if woken {
				wakes <- struct{}{}
				slept = 0
			}
			require.NoError(t, p.sleep(t.Context(), time.Second, wakes, lua.AcquireReply{}))
			require.Equal(t, woken, p.woken)
			require.Equal(t, slept, time.Since(begun))
		}
	})
}

func TestAPollerYieldsUntilTheEndOfTheYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polling(t, managerOn(t, redistest.Bubble(t).Client(), false))
		for _, left := range []time.Duration{-time.Second, 0, 1, time.Millisecond} {
			begun := time.Now()
			p.request.queue.contended().yield.until = begun.Add(left)
			require.NoError(t, p.begin(t.Context()))
			require.Equal(t, max(0, left), time.Since(begun))
		}
		p.request.queue.contended().yield.until = time.Now().Add(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.begin(ctx), context.Canceled)
	})
}

// Nobody may have the lock, so a yield leaves time for attempts. A wait that ends before any
// attempt does not say that somebody has the lock.
func TestAYieldLeavesTimeToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		p := polling(t, f)
		yieldForAnHour := func() { p.request.queue.contended().yield.until = time.Now().Add(time.Hour) }
		yieldForAnHour()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		require.NoError(t, p.begin(ctx))
		require.Equal(t, time.Second/2, time.Since(begun))
		require.NoError(t, p.begin(ctx))
		require.Equal(t, time.Second*3/4, time.Since(begun))

		p.request.Settings.PollInterval = time.Second
		begun = time.Now()
		require.NoError(t, p.begin(t.Context()))
		require.Equal(t, time.Second, time.Since(begun), "without a deadline, the poll bound ends the yield")

		p.request.Settings.PollInterval = time.Minute
		yieldForAnHour()
		why := errors.New("the caller has gone")
		caused, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(why) })
		err := p.begin(caused)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, lockerr.ErrNotAcquired)
	})
}

// Goroutines of a client that lock and unlock without waiting begin a yield each time. They do not
// put off the first attempt of a caller that yields already.
func TestReleasesOfItsOwnClientExtendNoYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client(), false)
		p := polling(t, f)
		l := p.request.queue
		channel := p.request.Keys().Channel
		require.NoError(t, l.subscription(f.session.Hub, channel).Ready(t.Context()))
		begun := time.Now()
		release := func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.yield.noteRelease(time.Now(), subscriberCount{counted: 5, own: true}, 0)
			l.yield.until = time.Now().Add(100 * time.Millisecond)
		}
		release()
		ended := make(chan time.Time, 1)
		go func() {
			assert.NoError(t, p.begin(t.Context()))
			ended <- time.Now()
		}()
		for range 3 {
			time.Sleep(40 * time.Millisecond)
			release()
			require.NoError(t, v.Client().Publish(t.Context(), channel, "0").Err())
			synctest.Wait()
		}
		require.Equal(t, 100*time.Millisecond, (<-ended).Sub(begun))
	})
}

// A client that has released the lock, and listens, yields until all that have waited longer have
// had the lock. The message of its own release does not count.
func TestAYieldEndsWhenAllOthersHaveHadTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client(), false)
		p := polling(t, f)
		p.request.Settings.PollInterval = time.Minute
		channel := p.request.Keys().Channel
		require.NoError(t, p.request.queue.subscription(f.session.Hub, channel).Ready(t.Context()))
		release := func() { require.NoError(t, v.Client().Publish(context.Background(), channel, "0").Err()) }
		for _, others := range []int64{1, 3} {
			begun := time.Now()
			y := &p.request.queue.contended().yield
			y.noteRelease(begun, subscriberCount{counted: others, own: true}, 0)
			y.until = begun.Add(time.Hour)
			ended := make(chan time.Time, 1)
			go func() {
				assert.NoError(t, p.begin(t.Context()))
				ended <- time.Now()
			}()
			for range 1 + others {
				require.Empty(t, ended)
				time.Sleep(time.Second)
				release()
				synctest.Wait()
			}
			require.Equal(t, time.Duration(1+others)*time.Second, (<-ended).Sub(begun))
		}
	})
}

// Its own message does not end the yield of a client that knows of nobody who has waited longer. A
// waiter that it does not know of would never get the lock.
func TestTheMessageOfItsOwnReleaseEndsNoYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client(), false)
		p := polling(t, f)
		l := p.request.queue
		require.NoError(t, l.subscription(f.session.Hub, p.request.Keys().Channel).Ready(t.Context()))
		begun := time.Now()
		l.yield.noteRelease(begun, subscriberCount{mayBeMore: true, own: true}, 0)
		l.yield.until = begun.Add(time.Second)
		require.NoError(t, v.Client().Publish(t.Context(), p.request.Keys().Channel, "0").Err())
		require.NoError(t, p.begin(t.Context()))
		require.Equal(t, time.Second, time.Since(begun))
	})
}

// A client that listens to a lock receives its own release, and does not count itself.
func TestAClientDoesNotCountItsOwnSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		p := polling(t, f)
		l, keys := p.request.queue, p.request.Keys()
		require.NoError(t, l.subscription(f.session.Hub, keys.Channel).Ready(t.Context()))
		f.noteRelease(keys.Lock, keys.Channel, 1, 0)
		require.Zero(t, l.yield.subscribers)
		require.True(t, l.yield.awaitsOwn)
		f.noteRelease(keys.Lock, keys.Channel, 3, 0)
		require.EqualValues(t, 2, l.yield.subscribers)
	})
}

// The holder may be a goroutine of this client, or nobody any more.
func TestOnlyAnotherClientIsNotedAsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for holder, other := range map[string]bool{"": false, f.session.ID + ":7": false, "22222222-2222-2222-2222-222222222222:7": true} {
			p := polling(t, f)
			p.request.queue.contended().yield.otherHeld = false
			err := p.wait(ctx, lua.AcquireReply{Holder: holder, Remaining: time.Second})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, lockerr.ErrNotAcquired)
			require.Equal(t, holder, p.lastHolder)
			require.Equal(t, other, p.request.queue.yield.otherHeld)
		}
	})
}

func TestOthersGoFirstUntilTheEndOfTheYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		l := f.use("x")
		defer f.stopUsing("x", l)
		require.Zero(t, l.yieldFor())
		idle, tried := l.noteRelease(subscriberCount{}, 0)
		require.False(t, idle)
		require.False(t, tried)
		for range 8 {
			idle, tried = l.noteRelease(monitored, 0)
			require.False(t, idle)
			require.True(t, tried)
		}
		require.Equal(t, 100*time.Millisecond, l.yieldFor())
		time.Sleep(60 * time.Millisecond)
		require.Equal(t, 40*time.Millisecond, l.yieldFor())
		l.noteRefused("other")
		_, tried = l.noteRelease(monitored, 0)
		require.False(t, tried, "the yields are for the other client")
	})
}

// inUse reports whether the client keeps what it knows of a name.
func (m *manager) inUse(name string) bool {
	state := m.registry.AcquireRef(name)
	defer m.registry.ReleaseRef(name, state)
	m.mu.Lock()
	defer m.mu.Unlock()
	return state.Local != nil
}

// use counts the test as a user of a name until stopUsing.
func (m *manager) use(name string) *localQueue { return m.localQueueOf(m.registry.AcquireRef(name)) }

func (m *manager) stopUsing(name string, l *localQueue) {
	m.registry.ReleaseRef(name, l.LockState)
}

// The state of a name is kept for the longest yield after its last release.
func TestANameIsKeptForTheLongestYield(t *testing.T) {
	for name, c := range map[string]struct {
		cluster  bool
		received int64
		kept     bool
	}{
		"nobody received":              {false, 0, false},
		"somebody received":            {false, 1, true},
		"nobody received on this node": {true, 0, true},
		"the publish was denied":       {false, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := managerOn(t, redistest.Bubble(t).Client(), c.cluster)
				f.noteRelease("x", "channel", c.received, 0)
				require.Equal(t, c.kept, f.inUse("x"))
				time.Sleep(60 * time.Millisecond)
				f.noteRelease("x", "channel", c.received, 0)
				time.Sleep(100*time.Millisecond - 1)
				synctest.Wait()
				require.Equal(t, c.kept, f.inUse("x"))
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.False(t, f.inUse("x"))
			})
		})
	}
}

// The client hears its own releases while it listens. It does not count itself.
func TestAClientDoesNotCountItselfAmongTheReceivers(t *testing.T) {
	for received, kept := range map[int64]bool{0: false, 1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			f := managerOn(t, redistest.Bubble(t).Client(), false)
			f.idleSubscribers.Store(1) // nobody gets tries
			l := f.use("x")
			require.NoError(t, l.subscription(f.session.Hub, "channel").Ready(t.Context()))
			f.noteRelease("y", "channel", received, 0)
			require.Equal(t, kept, f.inUse("y"))
			time.Sleep(time.Second)
			f.stopUsing("x", l)
		})
	}
}

func TestTheLastUserOfANameEndsItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		l := f.use("x")
		require.Same(t, l, f.use("x"))
		sub := l.subscription(f.session.Hub, "channel")
		require.NoError(t, sub.Ready(t.Context()))
		require.Same(t, sub, l.subscription(f.session.Hub, "channel"))
		f.stopUsing("x", l)
		time.Sleep(time.Second)
		require.True(t, f.inUse("x"))
		require.Equal(t, 1, f.registry.Len())
		require.True(t, f.session.Hub.IsSubscribed("channel"))
		f.stopUsing("x", l)
		time.Sleep(time.Hour) // the channel itself is kept for a while
		require.False(t, f.inUse("x"))
		require.Zero(t, f.registry.Len())
		require.False(t, f.session.Hub.IsSubscribed("channel"))
	})
}

// A subscriber that had its yields and never came is idle, for all names. There are fewer of them
// once fewer hear a release.
func TestIdleSubscribersAreKnownToAllNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := managerOn(t, redistest.Bubble(t).Client(), false)
		for range 8 {
			f.noteRelease("x", "channel", 3, 0)
			require.Zero(t, f.idleSubscribers.Load())
		}
		f.noteRelease("x", "channel", 3, 0)
		require.Equal(t, int64(3), f.idleSubscribers.Load())
		f.noteRelease("y", "channel", 4, 0)
		require.Equal(t, int64(3), f.idleSubscribers.Load(), "the fourth may be a waiter")
		f.noteRelease("z", "channel", 1, 0)
		require.Equal(t, int64(1), f.idleSubscribers.Load())
		time.Sleep(time.Second)
	})
}

// Somebody waits in the queue, and the lock cannot be handed on: a permission is missing. TryLock
// tries that once, and does not wait.
func TestATryThatCannotHandTheLockOnGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		f := managerOn(t, v.Client(), false)
		m := f.newMutex("x", new(settings.Default))
		h, err := m.Lock(t.Context()) // the client knows the clock
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		k, member := key.ForMutex("x"), fmt.Sprintf("%s:1 1 60000 30000 other", "22222222-2222-2222-2222-222222222222")
		rdb := v.Client()
		require.NoError(t, rdb.ZAdd(t.Context(), k.Queue, redis.Z{Score: float64(time.Now().UnixMicro()), Member: member}).Err())
		require.NoError(t, rdb.ZAdd(t.Context(), k.Alive, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: member}).Err())
		v.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return lua.ScriptName(cmd) != "" && lua.ScriptName(cmd) != "mutex/acquire" },
			Action: redistest.Refuse("NOPERM no"),
		})
		v.Record()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.TryLock(ctx)
		require.ErrorIs(t, err, lockerr.ErrNotAcquired)
		require.NoError(t, ctx.Err())
		asked := 0
		for _, cmd := range v.Recorded() {
			if lua.ScriptName(cmd) == "mutex/acquire" {
				asked++
			}
		}
		require.Equal(t, 2, asked)
	})
}
