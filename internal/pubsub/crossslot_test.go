package pubsub

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// refuseSeveral refuses every command with several channels, as managed services do that have
// sharded channels only.
func refuseSeveral(_ string, channels []string) (string, bool) {
	return "CROSSSLOT Keys in request don't hash to the same slot", len(channels) > 1
}

func TestChannelsOfSeveralSlotsAreSentOneByOne(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(refuseSeveral)
		subs := make([]*Subscription, 50)
		for i := range subs {
			subs[i] = s.hub.Subscribe(fmt.Sprint("channel-", i))
		}
		for i, sub := range subs {
			require.NoError(t, sub.Ready(t.Context()))
			require.True(t, sub.Live(), i)
		}
		require.Equal(t, len(subs)+1, s.sent("SUBSCRIBE"), "one is refused")
		require.Equal(t, 1, s.dialled())
		for i, sub := range subs {
			s.publish(fmt.Sprint("channel-", i))
			require.True(t, isWoken(sub), i)
			sub.Close()
		}
		s.sleep(time.Minute)
		require.Equal(t, len(subs), s.sent("UNSUBSCRIBE"), "the hub knows that the server wants them one by one")
		requireEmpty(t, s.hub)
		synctest.Wait()
		require.Zero(t, s.log.count(slog.LevelWarn))
	})
}

// The channels came one by one, so the hub learns from its first UNSUBSCRIBE.
func TestRefusedUnsubscribeOfSeveralSlotsIsSentOneByOne(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		var again *Subscription
		s.onCommand(func(verb string, channels []string) (string, bool) {
			reply, refused := refuseSeveral(verb, channels)
			if refused {
				again = s.hub.Subscribe("a") // while the command is in flight
			}
			return reply, refused
		})
		subs := []*Subscription{s.live("a"), s.live("b"), s.live("c")}
		for _, sub := range subs {
			sub.Close()
		}
		s.sleep(time.Minute)
		require.Equal(t, []string{"a"}, s.subscribed(), "it is used again")
		require.True(t, again.Live())
		require.Equal(t, 3, s.sent("SUBSCRIBE"), "it was subscribed all the time")
		require.Equal(t, 3, s.sent("UNSUBSCRIBE"), "one is refused")
		s.publish("a")
		require.True(t, isWoken(again))
		again.Close()
		s.sleep(time.Minute)
		requireEmpty(t, s.hub)
		synctest.Wait()
		require.Zero(t, s.log.count(slog.LevelWarn))
	})
}
