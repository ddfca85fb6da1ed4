package pubsub

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A hub gets the messages of a channel from its confirmation to the end of its subscription, even
// if nobody waits any more.
func TestReceivesMessages(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		confirm, denies := make(chan struct{}), deny("denied")
		s.onCommand(func(verb string, channels []string) (string, bool) {
			if verb == "SUBSCRIBE" && slices.Contains(channels, "a") {
				<-confirm
			}
			return denies(verb, channels)
		})
		s.live("b")
		require.False(t, s.hub.IsSubscribed("a"))
		a := s.hub.Subscribe("a")
		require.False(t, s.hub.IsSubscribed("a"), "not yet")
		close(confirm)
		require.NoError(t, a.Ready(t.Context()))
		require.True(t, s.hub.IsSubscribed("a"))
		a.Close()
		require.True(t, s.hub.IsSubscribed("a"), "it lingers")
		s.sleep(3 * time.Second)
		require.False(t, s.hub.IsSubscribed("a"))

		denied := s.hub.Subscribe("denied")
		require.NoError(t, denied.Ready(t.Context()))
		require.False(t, s.hub.IsSubscribed("denied"))
	})
}

func TestSubscriptionsOfOneChannelShareOneSubscribeAndAreAllWoken(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		subs := []*Subscription{s.live("a"), s.live("a"), s.live("a")}
		other := s.live("b")
		s.publish("a")
		for _, sub := range subs {
			require.True(t, isWoken(sub))
		}
		require.False(t, isWoken(other))
		require.Equal(t, 2, s.sent("SUBSCRIBE"), "one for a, one for b")

		subs[0].Close()
		subs[0].Close()
		s.publish("a")
		require.False(t, isWoken(subs[0]), "closed subscriptions hear nothing")
		require.True(t, isWoken(subs[1]))
		require.True(t, isWoken(subs[2]))
		s.sleep(time.Minute)
		require.Zero(t, s.sent("UNSUBSCRIBE"), "others still wait")
	})
}

func TestUnusedChannelLingersAndIsThenUnsubscribed(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a, b := s.live("a"), s.live("b")
		a.Close()
		s.sleep(300 * time.Millisecond)
		b.Close()
		s.sleep(699 * time.Millisecond)
		require.ElementsMatch(t, []string{"a", "b"}, s.subscribed(), "not before Linger")
		s.sleep(300 * time.Millisecond)
		require.Equal(t, []string{"b"}, s.subscribed(), "each by itself")
		s.sleep(701 * time.Millisecond)
		require.Empty(t, s.subscribed(), "not after twice Linger")
		require.LessOrEqual(t, s.sent("UNSUBSCRIBE"), 2)
		requireEmpty(t, s.hub)
	})
}

func TestHotChannelDoesNotPayForEachCycle(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		for range 1000 {
			sub := s.hub.Subscribe("hot")
			require.NoError(t, sub.Ready(t.Context()))
			require.True(t, sub.Live())
			s.sleep(10 * time.Millisecond)
			sub.Close()
			s.sleep(10 * time.Millisecond)
		}
		require.Equal(t, 1, s.sent("SUBSCRIBE"))
		require.Zero(t, s.sent("UNSUBSCRIBE"))
	})
}

func TestChannelUsedAgainIsUnusedNoMore(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a").Close()
		s.sleep(500 * time.Millisecond)
		s.live("a")
		s.sleep(time.Minute)
		require.Equal(t, []string{"a"}, s.subscribed())
		require.Equal(t, 1, s.sent("SUBSCRIBE"))
		require.Zero(t, s.sent("UNSUBSCRIBE"))
	})
}

func TestChannelGivenUpBeforeItsCommandIsNotSubscribed(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(string, []string) (string, bool) {
			time.Sleep(100 * time.Millisecond)
			return "", false
		})
		a := s.hub.Subscribe("a")
		synctest.Wait()
		s.hub.Subscribe("b").Close()
		require.NoError(t, a.Ready(t.Context()))
		s.sleep(time.Second)
		require.Equal(t, 1, s.sent("SUBSCRIBE"))
	})
}

func TestChannelUsedAgainWhileUnsubscribingIsSubscribedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) {
			if verb == "UNSUBSCRIBE" {
				time.Sleep(100 * time.Millisecond)
			}
			return "", false
		})
		s.live("a").Close()
		s.sleep(time.Second + 50*time.Millisecond)
		require.Equal(t, 1, s.sent("UNSUBSCRIBE"), "the test is about this moment")

		sub := s.hub.Subscribe("a")
		require.False(t, sub.Live(), "what is being given up is not live")
		require.NoError(t, sub.Ready(t.Context()))
		require.True(t, sub.Live())
		s.publish("a")
		require.True(t, isWoken(sub))

		// Closed again while the channel is leaving.
		sub.Close()
		s.sleep(time.Second + 50*time.Millisecond)
		s.hub.Subscribe("a").Close()
		s.sleep(time.Second)
		require.Empty(t, s.subscribed())
		requireEmpty(t, s.hub)
	})
}

func TestManyChannelsAreFewCommandsOnOneConnection(t *testing.T) {
	const n = 5000
	simulate(t, func(t *testing.T, s *sim) {
		subs := make([]*Subscription, n)
		for i := range subs {
			subs[i] = s.hub.Subscribe(fmt.Sprint("channel-", i))
		}
		for _, sub := range subs {
			require.NoError(t, sub.Ready(t.Context()))
			require.True(t, sub.Live())
		}
		require.Less(t, s.sent("SUBSCRIBE"), 50, "what comes together goes together")
		require.Len(t, s.subscribed(), n)
		for _, sub := range subs {
			sub.Close()
		}
		s.sleep(2 * time.Second)
		require.Empty(t, s.subscribed())
		require.Less(t, s.sent("UNSUBSCRIBE"), 50)
		require.Equal(t, 1, s.dialled())
		requireEmpty(t, s.hub)
	})
}

func TestFloodOnlySetsTheWake(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		slow, other := s.live("a"), s.live("b")
		for range 2000 {
			require.NoError(t, s.ops.Publish(t.Context(), "a", "forged").Err())
		}
		s.publish("b")
		require.True(t, isWoken(other), "a waiter that does not look holds up nobody")
		require.True(t, isWoken(slow))
		require.False(t, isWoken(slow), "wakes merge")
		require.Equal(t, 1, s.dialled())
	})
}

func TestReadyTakesTheWakesThatCameBeforeIt(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		sub := s.live("a")
		require.False(t, isWoken(sub), "the confirmation is no reason to look twice")
		late := s.hub.Subscribe("b")
		s.sleep(time.Millisecond)
		require.True(t, isWoken(late), "who does not call Ready hears of the confirmation")
	})
}

// Ready must not return before the wake-up of the confirmation has come, because the caller would
// get it later. Many other waiters make that moment long enough to be seen.
func TestReadyReturnsAfterTheWakeOfTheConfirmation(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		for i := range 4 {
			channel := fmt.Sprint("channel-", i)
			subs := make([]*Subscription, 20_000)
			s.onCommand(func(string, []string) (string, bool) { time.Sleep(time.Second); return "", false })
			for i := range subs {
				subs[i] = s.hub.Subscribe(channel)
			}
			last := subs[len(subs)-1]
			require.NoError(t, last.Ready(t.Context()))
			require.True(t, last.Live())
			synctest.Wait()
			require.False(t, isWoken(last))
		}
	})
}

func TestReadyEndsWithItsContextAndWithinPing(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a")
		s.onCommand(func(verb string, _ []string) (string, bool) { return "", verb == "SUBSCRIBE" })
		sub := s.hub.Subscribe("b")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, sub.Ready(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))

		began = time.Now()
		require.NoError(t, sub.Ready(t.Context()))
		require.LessOrEqual(t, time.Since(began), 3*time.Second, "without an answer, one Ping is enough")
		require.False(t, sub.Live())
	})
}

func TestUnusedConnectionIsClosedAndMadeAgainWhenNeeded(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a").Close()
		s.sleep(25 * time.Second)
		require.False(t, s.conn().isClosed(), "kept for a while")
		s.sleep(10 * time.Second)
		require.True(t, s.conn().isClosed())
		pings := s.sent("PING")
		s.sleep(time.Hour)
		require.Equal(t, pings, s.sent("PING"))
		require.Equal(t, 1, s.dialled())

		began := time.Now()
		s.live("a")
		require.Zero(t, time.Since(began), "an idle end is no reason to back off")
		require.Equal(t, 2, s.dialled())
		require.Empty(t, s.log.records)
	})
}

func TestCloseEndsEverything(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a, b := s.live("a"), s.live("b")
		b.Close()
		began := time.Now()
		s.hub.Close()
		s.hub.Close()
		require.True(t, s.conn().isClosed())
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Empty(t, s.subscribed())
		require.True(t, isWoken(a), "who waits looks once more")
		require.False(t, a.Live())
		require.NoError(t, a.Ready(t.Context()))
		a.Close()
		b.Close()

		late := s.hub.Subscribe("a")
		require.NoError(t, late.Ready(t.Context()))
		require.False(t, late.Live())
		requireEmpty(t, s.hub)
		late.Close()
		require.Equal(t, 1, s.dialled())
		require.Empty(t, s.log.records)
	})
}

// If a reader outlived its connection, the hub could take its last frames for new ones.
func TestReaderIsWaitedFor(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a")
		s.conn().lag.Store(int64(time.Second))
		synctest.Wait() // the reader reads
		began := time.Now()
		s.hub.Close()
		require.GreaterOrEqual(t, time.Since(began), time.Second)
	})
}

func TestCloseEndsWaitingForConfirmation(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) { return "", verb == "SUBSCRIBE" })
		sub := s.hub.Subscribe("a")
		ready := make(chan error)
		go func() { ready <- sub.Ready(context.Background()) }()
		synctest.Wait()
		began := time.Now()
		s.hub.Close()
		require.NoError(t, <-ready)
		require.Zero(t, time.Since(began))
	})
}

func TestHubWithoutUseDoesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		New(Config{Redis: s}) // never closed: a goroutine would panic the bubble
		s.sleep(time.Hour)
		s.hub.Close()
		require.Zero(t, s.dialled())
	})
}

// requireEmpty checks that h knows no channel any more.
func requireEmpty(t *testing.T, h *Hub) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.state
	require.Empty(t, r.channels)
	require.Empty(t, r.unsent)
	require.Empty(t, r.denied)
	require.Empty(t, r.unused)
	require.Empty(t, r.refusals)
}

func TestListenersGetMessagesInOrder(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		var received []string
		sub := s.hub.Listen("a", func(payload string) { received = append(received, payload) }, func() {})
		other := s.live("a")
		require.NoError(t, sub.Ready(t.Context()))
		require.True(t, sub.Live())
		for _, m := range []string{"one", "two", "two", ""} {
			require.NoError(t, s.ops.Publish(t.Context(), "a", m).Err())
		}
		synctest.Wait()
		require.Equal(t, []string{"one", "two", "two", ""}, received)
		require.True(t, isWoken(other), "those who want no more than a wake get it")
		require.True(t, isWoken(sub))

		sub.Close()
		require.NoError(t, s.ops.Publish(t.Context(), "a", "three").Err())
		synctest.Wait()
		require.Len(t, received, 4, "closed subscriptions hear nothing")
	})
}

// A listener is notified once for each new connection that it may have missed messages. It is not
// notified at the first connection, because Ready waits for that one.
func TestListenersLearnThatMessagesMayBeMissing(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		gaps := 0
		var sub *Subscription
		sub = s.hub.Listen("a", func(string) {}, func() {
			require.True(t, sub.Live())
			gaps++
		})
		require.NoError(t, sub.Ready(t.Context()))
		other := s.hub.Listen("b", func(string) {}, func() { gaps += 100 })
		require.NoError(t, other.Ready(t.Context()))
		other.Close()
		s.sleep(time.Minute)
		require.Zero(t, gaps)
		for n := range 3 {
			s.conn().cut()
			s.sleep(time.Minute)
			require.Equal(t, n+1, gaps)
		}
	})
}

// A listener may use the hub, because it is not called under the hub's mutex.
func TestAListenerMayCloseItsSubscription(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		n := 0
		var sub *Subscription
		sub = s.hub.Listen("a", func(string) { n++; sub.Close() }, func() {})
		require.NoError(t, sub.Ready(t.Context()))
		for range 3 {
			s.publish("a")
			synctest.Wait()
		}
		require.Equal(t, 1, n)
	})
}
