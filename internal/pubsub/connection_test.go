package pubsub

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

func TestSilentConnectionIsReplacedAndEveryWaiterLooks(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a, b := s.live("a"), s.live("b")
		isWoken(a)
		deaf := s.conn()
		s.sleep(time.Second)
		deaf.swallow()

		s.sleep(6*time.Second + 200*time.Millisecond) // twice Ping, and the pause before the next attempt
		require.True(t, deaf.isClosed())
		require.True(t, isWoken(a))
		require.True(t, isWoken(b))
		require.True(t, a.Live())
		require.Equal(t, 2, s.dialled())
		s.publish("a")
		require.True(t, isWoken(a))
		require.False(t, isWoken(b))
	})
}

// After an outage, a new subscriber waits for the confirmation as before.
func TestReadyWaitsAgainAfterAnOutage(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		s.conn().cut()
		s.sleep(time.Second)
		require.True(t, a.Live())
		s.live("b")
	})
}

func TestAnsweredPingsKeepTheConnection(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				s.rdb.Options().Protocol = protocol
				a := s.live("a")
				s.sleep(time.Hour)
				require.InDelta(t, 1200, s.sent("PING"), 10)
				require.True(t, a.Live())
				require.False(t, isWoken(a))
				require.Equal(t, 1, s.dialled())
				require.Equal(t, protocol == 3, slices.Contains(s.helloes(), "3"))
			})
		})
	}
}

func TestAnyFrameProvesTheConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		for range 1000 {
			s.sleep(2 * time.Second)
			s.publish("a")
		}
		require.Zero(t, s.sent("PING"))
		require.True(t, a.Live())
		require.Equal(t, 1, s.dialled())
	})
}

func TestPongOfAnotherPingIsNoAnswer(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a")
		s.onCommand(func(verb string, args []string) (string, bool) {
			return "", verb == "PING" && args[0] != "forged" // ours are swallowed
		})
		first := s.conn()
		s.sleep(3*time.Second + 500*time.Millisecond)
		for range 8 {
			require.False(t, first.isClosed(), "other frames come")
			s.sleep(time.Second)
			require.NoError(t, s.pubsub().Ping(t.Context(), "forged"))
		}
		s.sleep(time.Second)
		require.True(t, first.isClosed(), "but no answer")
	})
}

// A SUBSCRIBE that was written is not a subscription. If it stays unconfirmed, the hub subscribes
// again on a new connection, even if other frames arrive on the old one.
func TestUnconfirmedSubscribeIsSentAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		busy := s.live("busy")
		swallowed := false
		s.onCommand(func(verb string, _ []string) (string, bool) {
			first := verb == "SUBSCRIBE" && !swallowed
			swallowed = swallowed || first
			return "", first
		})
		a := s.hub.Subscribe("a")
		for range 8 {
			s.sleep(time.Second)
			s.publish("busy")
			require.False(t, a.Live())
		}
		s.sleep(2 * time.Second)
		require.True(t, a.Live())
		require.True(t, busy.Live())
		s.publish("a")
		require.True(t, isWoken(a))
	})
}

func TestCutConnectionIsReplacedWithOneOther(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		for i := range 20 {
			isWoken(a)
			s.conn().cut()
			synctest.Wait()
			require.True(t, isWoken(a), "the loss is a reason to look")
			require.False(t, a.Live())
			require.NoError(t, a.Ready(t.Context()), "and no reason to wait")

			s.sleep(10 * time.Second)
			require.True(t, isWoken(a), "the new subscription is another")
			require.True(t, a.Live())
			require.Equal(t, i+2, s.dialled(), "go-redis must not dial by itself")
		}
		require.Equal(t, 1, s.log.count(slog.LevelWarn))
		require.Equal(t, 1, s.log.count(slog.LevelInfo))
	})
}

func TestFailedWriteIsReportedAndNotMendedByGoRedis(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		isWoken(a)
		s.conn().failWrites()
		b := s.hub.Subscribe("b")
		s.sleep(time.Second)
		require.True(t, isWoken(a))
		require.True(t, a.Live())
		require.True(t, b.Live())
		require.Equal(t, 2, s.dialled())
	})
}

func TestChannelsNobodyWaitsForAreNotTakenToTheNextConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a")
		s.live("b").Close()
		s.conn().cut()
		s.sleep(time.Second)
		require.Equal(t, []string{"a"}, s.subscribed())
	})
}

func TestServerDownAtStart(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.setRefuse(true)
		began := time.Now()
		a := s.hub.Subscribe("a")
		require.NoError(t, a.Ready(t.Context()))
		require.Zero(t, time.Since(began), "a refused connection is news enough")
		require.False(t, a.Live())

		s.sleep(time.Hour)
		b := s.hub.Subscribe("b")
		require.NoError(t, b.Ready(t.Context()))
		require.Less(t, s.dialled(), 3600/2+20, "about one try in four seconds")
		require.Greater(t, s.dialled(), 3600/6)
		requireJitter(t, s.dials)
		require.Equal(t, 1, s.log.count(slog.LevelWarn), "an hour of it is one line")

		isWoken(a)
		s.setRefuse(false)
		s.sleep(6 * time.Second)
		require.True(t, a.Live())
		require.True(t, b.Live())
		require.True(t, isWoken(a))
		require.Equal(t, 1, s.log.count(slog.LevelWarn))
		require.Equal(t, 1, s.log.count(slog.LevelInfo))
	})
}

// requireJitter checks that the pauses differ when they have grown.
func requireJitter(t *testing.T, dials []time.Time) {
	t.Helper()
	pauses := map[time.Duration]bool{}
	for i := 20; i < len(dials); i++ {
		pauses[dials[i].Sub(dials[i-1])] = true
	}
	require.Greater(t, len(pauses), len(dials)/2)
}

func TestWaitersThatComeAndGoDuringAnOutageLeaveNothing(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.setRefuse(true)
		stays := s.hub.Subscribe("stays")
		for i := range 1000 {
			sub := s.hub.Subscribe(fmt.Sprint("channel-", i))
			require.NoError(t, sub.Ready(t.Context()))
			sub.Close()
			s.sleep(time.Second)
		}
		stays.Close()
		requireEmpty(t, s.hub)
		s.sleep(time.Minute)
		dials := s.dialled()
		s.sleep(time.Hour)
		require.Equal(t, dials, s.dialled(), "nobody waits, nobody dials")
	})
}

// A connection that ends early counts as a failed attempt: the pauses grow.
func TestConnectionsThatDoNotLastAreNotMadeWithoutPause(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.live("a")
		end := time.Now().Add(10 * time.Minute)
		for time.Now().Before(end) {
			s.conn().cut()
			s.sleep(10 * time.Millisecond)
		}
		require.Less(t, s.dialled(), 600/2+20)
		s.sleep(10 * time.Second)
		require.Equal(t, []string{"a"}, s.subscribed(), "it comes back by itself")

		s.sleep(time.Minute)
		s.conn().cut()
		s.sleep(50 * time.Millisecond)
		require.Equal(t, []string{"a"}, s.subscribed(), "and after a good time the pauses are short again")
	})
}

// go-redis may change the connection by itself. The only sign of that is a confirmation that the
// hub did not ask for.
func TestRepeatedConfirmationWakes(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a, b := s.live("a"), s.live("b")
		require.NoError(t, s.pubsub().Subscribe(t.Context(), "a"))
		synctest.Wait()
		require.True(t, isWoken(a))
		require.False(t, isWoken(b))
		require.True(t, a.Live())
		require.Equal(t, 1, s.dialled())
	})
}

func TestRepeatedConfirmationOfWhatIsLeavingDoesNotKeepIt(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		b := s.live("b")
		s.live("a").Close()
		s.onCommand(func(string, []string) (string, bool) {
			time.Sleep(100 * time.Millisecond)
			return "", false
		})
		s.sleep(950 * time.Millisecond)
		require.NoError(t, s.pubsub().Subscribe(t.Context(), "a")) // answered after the UNSUBSCRIBE is sent
		s.sleep(time.Second)
		require.Equal(t, []string{"b"}, s.subscribed())
		s.sleep(20 * time.Second)
		require.Equal(t, 1, s.dialled())
		b.Close()
		s.sleep(3 * time.Second)
		requireEmpty(t, s.hub)
	})
}

func TestSlowDialIsNotSilence(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.dialTakes = 4 * time.Second
		a := s.hub.Subscribe("a")
		s.sleep(4 * time.Second)
		require.True(t, a.Live())
		require.Equal(t, 1, s.dialled())
	})
}

func TestUnaskedErrorReplacesTheConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		s.onCommand(deny("denied"))
		require.NoError(t, s.pubsub().Subscribe(t.Context(), "denied"))
		s.sleep(time.Second)
		require.Equal(t, 2, s.dialled())
		require.True(t, a.Live())
		require.True(t, isWoken(a))
	})
}

func TestUnaskedUnsubscribeIsUndone(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		require.NoError(t, s.pubsub().Unsubscribe(t.Context(), "a"))
		synctest.Wait()
		require.True(t, isWoken(a))
		require.True(t, a.Live())
		s.publish("a")
		require.True(t, isWoken(a))
		require.Equal(t, 1, s.dialled())
	})
}

func TestCloseDuringBackOff(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.setRefuse(true)
		a := s.hub.Subscribe("a")
		s.sleep(time.Minute + time.Second/3)
		began := time.Now()
		s.hub.Close()
		require.Zero(t, time.Since(began))
		require.True(t, isWoken(a))
	})
}

func TestCloseEndsDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(options(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		defer func() { _ = rdb.Close() }()
		h := New(Config{Redis: node.SubscriberOf(rdb)})
		a := h.Subscribe("a")
		began := time.Now()
		require.NoError(t, a.Ready(t.Context()))
		require.LessOrEqual(t, time.Since(began), 3*time.Second, "Ping bounds the wait")

		began = time.Now()
		h.Close()
		require.Zero(t, time.Since(began))
	})
}

// go-redis ignores contexts during the handshake. Its own time-outs end it.
func TestStalledHandshakeHoldsUpCloseButNoWaiter(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) { return "", verb == "HELLO" })
		a := s.hub.Subscribe("a")
		began := time.Now()
		require.NoError(t, a.Ready(t.Context()))
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
		s.hub.Close()
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
	})
}
