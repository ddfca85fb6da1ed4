package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestProxyIsTransparentToPipelinesScriptsAndLargeValues(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		rdb := r.client()
		large := strings.Repeat("x\r\n", 300_000)
		require.NoError(t, rdb.Set(ctx, key, large, 0).Err())
		require.Equal(t, large, rdb.Get(ctx, key).Val())

		counts, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 1000 {
				p.Incr(ctx, key+":n")
			}
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 1000, counts[999].(*redis.IntCmd).Val())

		got, err := rdb.Eval(ctx, "return {1, 'a', {2}}", []string{key}).Result()
		require.NoError(t, err)
		require.Equal(t, []any{int64(1), "a", []any{int64(2)}}, got)

		_, err = rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.HSet(ctx, key+":h", "f", "v").Err() })
		require.NoError(t, err)
		require.Equal(t, map[string]string{"f": "v"}, rdb.HGetAll(ctx, key+":h").Val())
	})
}

func TestMessagesPassBesideReplies(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		a, b := redistest.Name(t), redistest.Name(t)
		rdb := r.client()
		sub := rdb.Subscribe(ctx, a, b)
		defer sub.Close()
		receiveSubscription(t, sub, a)
		receiveSubscription(t, sub, b)
		require.EqualValues(t, 1, rdb.Publish(ctx, b, "hello").Val())
		message, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "hello", message.Payload)

		require.NoError(t, sub.Ping(ctx, "nonce"))
		pong, err := sub.Receive(ctx)
		require.NoError(t, err)
		require.IsType(t, &redis.Pong{}, pong)
		require.NoError(t, sub.Unsubscribe(ctx, a))
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, rdb.Publish(ctx, b, "still here").Val())
	})
}

// The fault belongs to the reply to the command, not to whatever the server sends next.
func TestMessageIsNotTakenForTheReplyOfAFaultyCommand(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		channel := redistest.Name(t)
		rdb := r.client()
		sub := rdb.Subscribe(ctx, channel)
		defer sub.Close()
		receiveSubscription(t, sub, channel)

		other := channel + ":other"
		lost := r.Inject(redistest.Rule{Match: redistest.Containing(other), Times: 1, Action: redistest.CutReply()})
		require.NoError(t, sub.Subscribe(ctx, other))
		lost.Await(1) // the server has executed it; go-redis connects again
		for got := false; !got; {
			frame, err := sub.ReceiveTimeout(ctx, 5*time.Second)
			if err != nil {
				continue
			}
			s, ok := frame.(*redis.Subscription)
			got = ok && s.Channel == other
		}
		require.Equal(t, 1, lost.Bites())
	})
}

func TestBlackHoleTakesSubscribersAndLeavesCommands(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		channel := redistest.Name(t)
		rdb := r.client(impatient)
		deaf := rdb.Subscribe(ctx, channel)
		defer deaf.Close()
		receiveSubscription(t, deaf, channel)

		r.BlackHole(redistest.SubscriberTraffic)
		require.EqualValues(t, 1, rdb.Publish(ctx, channel, "lost").Val(), "the server believes in its subscriber")
		_, err := deaf.ReceiveTimeout(ctx, 20*time.Millisecond)
		requireTimeout(t, err)
		require.NotZero(t, r.Discarded())
		require.Equal(t, 1, r.Unreceived())

		r.Heal()
		require.EqualValues(t, 1, rdb.Publish(ctx, channel, "lost as well").Val())
		_, err = deaf.ReceiveTimeout(ctx, 20*time.Millisecond)
		requireTimeout(t, err)

		fresh := rdb.Subscribe(ctx, channel)
		defer fresh.Close()
		receiveSubscription(t, fresh, channel)
	})
}

func TestBlackHoleTakesCommandsAndLeavesSubscribers(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		channel := redistest.Name(t)
		rdb := r.client(impatient)
		require.NoError(t, rdb.Ping(ctx).Err())
		r.BlackHole(redistest.CommandTraffic)
		sub := rdb.Subscribe(ctx, channel)
		defer sub.Close()
		receiveSubscription(t, sub, channel)
		requireTimeout(t, rdb.Incr(ctx, channel).Err())
		r.Heal()
		require.EqualValues(t, 1, rdb.Incr(ctx, channel).Val())
	})
}

func TestBlackHoleTakesEverythingAndAcceptsConnections(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		rdb := r.client(impatient)
		r.BlackHole(redistest.AllTraffic)
		requireTimeout(t, rdb.Ping(ctx).Err())
		require.NotZero(t, r.Accepted())
		r.Heal()
		require.NoError(t, rdb.Ping(ctx).Err())
	})
}

func TestDownRefusesAndUpServesOnTheSameAddress(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		rdb := r.client()
		require.NoError(t, rdb.Ping(ctx).Err())
		addr := r.Addr()
		r.Down()
		require.Zero(t, r.Open())
		require.Error(t, r.client(once, func(o *redis.Options) { o.DialerRetries = 1 }).Ping(ctx).Err())
		r.Up()
		require.Equal(t, addr, r.Addr())
		require.NoError(t, rdb.Ping(ctx).Err())
	})
}

func TestKillAllClosesConnectionsAndClientsComeBack(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		rdb := r.client()
		require.NoError(t, rdb.Ping(ctx).Err())
		require.Equal(t, 1, r.Open())
		r.KillAll()
		require.Zero(t, r.Open())
		require.NoError(t, rdb.Ping(ctx).Err())
		require.Equal(t, 2, r.Accepted())
	})
}

func TestCommandsAreCountedAndRecorded(t *testing.T) {
	everywhere(t, func(t *testing.T, r rig) {
		key := redistest.Name(t)
		rdb := r.client()
		require.NoError(t, rdb.Ping(ctx).Err())
		r.ResetCounts()
		r.Record()
		require.NoError(t, rdb.Set(ctx, key, "v", 0).Err())
		require.NoError(t, rdb.Get(ctx, key).Err())
		require.NoError(t, rdb.Get(ctx, key).Err())
		require.Equal(t, 2, r.Forwarded("get"))
		require.Equal(t, 3, r.Forwarded("set", "get"))
		require.Equal(t, 3, r.Forwarded())
		require.Equal(t, [][]string{{"set", key, "v"}, {"get", key}, {"get", key}}, r.Recorded())
	})
}

// A late command uses a connection of its own. The connection has to log in, and has to use the
// protocol of the original.
func TestLateCommandLogsInAsItsClientDid(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	for protocol := 2; protocol <= 3; protocol++ {
		p := redistest.NewProxy(t, s.Addr())
		rdb := p.Client(func(o *redis.Options) { o.Protocol, o.Password, o.DB = protocol, "secret", 3 })
		dup := p.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.Duplicate()})
		key := fmt.Sprint("k", protocol)
		require.NoError(t, rdb.Incr(ctx, key).Err())
		require.Equal(t, []any{int64(2)}, dup.Release())
	}
}

func TestServerThatDiesIsSeenThroughTheProxyUnlessItIsSilent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	rdb := p.Client(once)
	require.NoError(t, rdb.Ping(ctx).Err())
	seen := rdb.Subscribe(ctx, "seen")
	defer seen.Close()
	receiveSubscription(t, seen, "seen")
	s.Kill()
	_, err := seen.ReceiveTimeout(ctx, time.Minute)
	require.Error(t, err)

	s.Restart()
	hold := p.Inject(redistest.Rule{Match: redistest.Command("INCR"), Times: 1, Action: redistest.HoldBack()})
	requireTimeout(t, p.Client(impatient).Incr(ctx, "k").Err())
	s.Kill()
	failed := hold.Release()
	require.Len(t, failed, 1)
	require.Implements(t, (*error)(nil), failed[0])
}

func receiveSubscription(t testing.TB, sub *redis.PubSub, channel string) {
	t.Helper()
	frame, err := sub.ReceiveTimeout(ctx, time.Minute)
	require.NoError(t, err)
	require.IsType(t, &redis.Subscription{}, frame)
	require.Equal(t, channel, frame.(*redis.Subscription).Channel)
}
