package redistest_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Goal: a server really works in virtual time. Method: renew a lease of 30 s for ten hours, then
// stop.
func TestTenHoursOfRenewalsThenExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		start := time.Now()
		const lease = 30 * time.Second
		require.NoError(t, rdb.Set(ctx, "lease", "mine", lease).Err())
		for time.Since(start) < 10*time.Hour {
			time.Sleep(lease / 3)
			require.Equal(t, lease-lease/3, rdb.PTTL(ctx, "lease").Val())
			require.True(t, rdb.PExpire(ctx, "lease", lease).Val())
		}
		time.Sleep(lease - time.Millisecond)
		require.Equal(t, "mine", rdb.Get(ctx, "lease").Val())
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, rdb.Get(ctx, "lease").Err(), redis.Nil)
		serverTime, err := rdb.Time(ctx).Result()
		require.NoError(t, err)
		require.True(t, serverTime.Equal(time.Now()))
	})
}

// The times are exact, because the test controls the clock. A test on TCP must not assert anything
// like this.
func TestDelaysTakeExactlyTheirVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		require.NoError(t, rdb.Ping(ctx).Err())
		v.Inject(redistest.Rule{Match: redistest.Command("GET"), Times: 1, Action: redistest.DelayReply(time.Second)})
		v.Inject(redistest.Rule{Match: redistest.Command("SET"), Times: 1, Action: redistest.DelayRequest(2 * time.Second)})
		start := time.Now()
		require.ErrorIs(t, rdb.Get(ctx, "k").Err(), redis.Nil)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, rdb.Set(ctx, "k", "v", time.Minute).Err())
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, time.Minute, rdb.PTTL(ctx, "k").Val(), "the lease starts when the command arrives")
	})
}

// A link with a delay is a long wire. It delays the commands of a pipeline together, not one after
// the other, and keeps their order.
func TestADelayIsThatOfALongWire(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"reply": redistest.DelayReply(time.Second), "request": redistest.DelayRequest(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := redistest.Bubble(t)
				rdb := v.Client()
				delay := v.Inject(redistest.Rule{Match: redistest.Command("INCR"), Action: action})
				start := time.Now()
				for range 2 {
					pipe := rdb.Pipeline()
					first, second, other := pipe.Incr(ctx, "k"), pipe.Incr(ctx, "k"), pipe.Get(ctx, "k")
					_, err := pipe.Exec(ctx)
					require.NoError(t, err)
					require.Equal(t, first.Val()+1, second.Val())
					require.Equal(t, strconv.FormatInt(second.Val(), 10), other.Val())
				}
				require.Equal(t, 2*time.Second, time.Since(start))
				require.Equal(t, 4, delay.Bites())
			})
		})
	}
}

func TestBlackHoleLastsUntilTheReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client(once)
		require.NoError(t, rdb.Ping(ctx).Err())
		v.BlackHole(redistest.AllTraffic)
		start := time.Now()
		requireTimeout(t, rdb.Get(ctx, "k").Err())
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// A subscriber that does not read would stop a bare miniredis for everybody, because miniredis
// writes to a pipe without a buffer, under its global lock.
func TestSubscriberThatDoesNotReadStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		deaf := rdb.Subscribe(ctx, "c")
		defer deaf.Close()
		receiveSubscription(t, deaf, "c")
		for range 100 {
			require.EqualValues(t, 1, rdb.Publish(ctx, "c", "unreceived").Val())
		}
	})
}

func TestHooksCanBeSetBeforeTheFirstClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		v.Server.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			if cmd != "GET" {
				return false
			}
			p.WriteError("ERR hooked")
			return true
		})
		require.EqualError(t, v.Client().Get(ctx, "k").Err(), "ERR hooked")
	})
}

// Two links lead to one server. A fault on one link does not affect the other.
func TestLinksOfTwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		other := v.Another()
		one, two := v.Client(once), other.Client(once)
		require.NoError(t, one.Set(ctx, "k", "v", 0).Err())
		v.Down()
		require.Error(t, one.Get(ctx, "k").Err())
		require.Equal(t, "v", two.Get(ctx, "k").Val())
		time.Sleep(10 * time.Second) // go-redis goes on dialling for a while
	})
}

func TestKillingSubscribersLeavesCommandsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client(once)
		ps := rdb.Subscribe(ctx, "c")
		defer ps.Close()
		receiveSubscription(t, ps, "c")
		require.NoError(t, rdb.Ping(ctx).Err())
		require.Equal(t, 1, v.Kill(redistest.SubscriberTraffic))
		require.NoError(t, rdb.Ping(ctx).Err(), "never sent twice")
		require.Equal(t, 1, v.Kill(redistest.CommandTraffic))
		require.Error(t, rdb.Ping(ctx).Err())
	})
}

func TestManyClientsInManyBubblesOfOneProcess(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			v := redistest.Bubble(t)
			rdb := v.Client()
			done := make(chan error)
			for range 100 {
				go func() {
					time.Sleep(time.Second) // all at the same instant
					done <- rdb.Incr(context.Background(), "n").Err()
				}()
			}
			for range 100 {
				require.NoError(t, <-done)
			}
			require.Equal(t, "100", rdb.Get(ctx, "n").Val())
		})
	}
}

// rapid draws schedules of lost replies. A client gets no more successes than commands ran, and
// each lost reply increases the difference by one.
func TestDrawnFaultsInDrawnSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			v := redistest.Bubble(rt)
			rdb := v.Client()
			skip, losses := rapid.IntRange(0, 5).Draw(rt, "skip"), rapid.IntRange(1, 3).Draw(rt, "losses")
			cut := v.Inject(redistest.Rule{
				Match: redistest.Command("INCR"), Skip: skip, Times: losses, Action: redistest.CutReply(),
			})
			const calls = 6
			for range calls {
				require.NoError(rt, rdb.Incr(ctx, "n").Err())
			}
			stored, err := rdb.Get(ctx, "n").Int()
			require.NoError(rt, err)
			require.Equal(rt, losses, cut.Bites())
			require.Equal(rt, calls+losses, stored)
		})
	})
}

// A message may arrive after the answer to a command that was sent after the message.
func TestDelayedMessagesComeBehindLaterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		sub := rdb.Subscribe(ctx, "news")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		v.DelayMessages(time.Second)
		start := time.Now()
		require.EqualValues(t, 1, rdb.Publish(ctx, "news", "old").Val())
		require.Zero(t, time.Since(start))
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "old", m.Payload)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, 1, v.Delayed())
		v.DelayMessages(0)
		require.EqualValues(t, 1, rdb.Publish(ctx, "news", "new").Val())
		_, err = sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A client that is led to a replica that lags finds nothing there, and may write nothing.
func TestAReplicaLagsAndRefusesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := redistest.Bubble(t)
		rdb := v.Client()
		require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
		v.SwitchTo(v.Replica())
		require.ErrorIs(t, rdb.Get(ctx, "k").Err(), redis.Nil)
		require.ErrorContains(t, rdb.Del(ctx, "k").Err(), "READONLY")
		refused := rdb.Eval(ctx, `return redis.pcall('HDEL', KEYS[1], '')`, []string{"k"}).Err()
		require.ErrorContains(t, refused, "READONLY", "in scripts too")
		v.SwitchBack()
		require.Equal(t, "v", rdb.Get(ctx, "k").Val())
	})
}
