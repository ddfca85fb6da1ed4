package pubsub

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// deny refuses every SUBSCRIBE with one of names in it. As Redis does, it refuses the whole command
// and does not say for which name.
func deny(names ...string) func(string, []string) (string, bool) {
	return func(verb string, channels []string) (string, bool) {
		for _, c := range channels {
			if verb == "SUBSCRIBE" && slices.Contains(names, c) {
				return "NOPERM No permissions to access a channel", true
			}
		}
		return "", false
	}
}

func TestDeniedChannelDoesNotSpoilTheOthers(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(deny("channel-77", "channel-78", "channel-500"))
		subs := make([]*Subscription, 1000)
		for i := range subs {
			subs[i] = s.hub.Subscribe(fmt.Sprint("channel-", i))
		}
		began := time.Now()
		for i, sub := range subs {
			require.NoError(t, sub.Ready(t.Context()))
			require.Equal(t, i != 77 && i != 78 && i != 500, sub.Live(), i)
		}
		require.Zero(t, time.Since(began), "Ready does not wait for what will not come")
		require.Less(t, s.sent("SUBSCRIBE"), 80, "not one by one")
		require.Equal(t, 1, s.dialled(), "and not one connection each")
		synctest.Wait()
		require.Equal(t, 1, s.log.count(slog.LevelWarn))
	})
}

func TestDeniedChannelIsTriedAgainNowAndThen(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(deny("a", "b"))
		a, b := s.hub.Subscribe("a"), s.hub.Subscribe("b")
		s.sleep(time.Hour)
		require.Less(t, s.sent("SUBSCRIBE"), 3*120+10, "every Recheck")
		require.Greater(t, s.sent("SUBSCRIBE"), 100)
		require.Equal(t, 1, s.log.count(slog.LevelWarn), "an hour of it is one line")
		require.Zero(t, s.log.count(slog.LevelInfo))

		s.onCommand(nil)
		s.sleep(30 * time.Second)
		require.True(t, a.Live())
		require.True(t, b.Live())
		require.True(t, isWoken(a))
		require.Equal(t, 1, s.log.count(slog.LevelInfo))
	})
}

func TestManyDeniedChannelsAreTriedAgainAFewAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) {
			return "NOPERM this user has no permissions to run the 'subscribe' command", verb == "SUBSCRIBE"
		})
		subs := make([]*Subscription, 1000)
		for i := range subs {
			subs[i] = s.hub.Subscribe(fmt.Sprint("channel-", i))
		}
		s.sleep(time.Second)
		first := s.sent("SUBSCRIBE")
		require.Less(t, first, 2*len(subs))
		s.sleep(10 * time.Minute)
		require.Less(t, s.sent("SUBSCRIBE")-first, 21*2*recheckSize)

		s.onCommand(nil)
		s.sleep(31 * time.Second)
		for _, sub := range subs {
			require.True(t, sub.Live(), "one that is allowed again is reason to try all")
		}
	})
}

// A proxy without pub/sub answers with an error of another kind, which is not about one channel.
func TestAbsentPubSubIsOneCommand(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) {
			return "ERR unknown command", verb == "SUBSCRIBE"
		})
		subs := make([]*Subscription, 500)
		for i := range subs {
			subs[i] = s.hub.Subscribe(fmt.Sprint("channel-", i))
		}
		for _, sub := range subs {
			require.NoError(t, sub.Ready(t.Context()))
			require.False(t, sub.Live())
		}
		require.Less(t, s.sent("SUBSCRIBE"), 50, "what comes together is refused together")
		synctest.Wait()
		require.Equal(t, 1, s.log.count(slog.LevelWarn))
	})
}

func TestDeniedChannelLingersAndIsForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(deny("a"))
		for range 100 {
			sub := s.hub.Subscribe("a")
			require.NoError(t, sub.Ready(t.Context()))
			sub.Close()
			s.sleep(10 * time.Millisecond)
		}
		require.Equal(t, 1, s.sent("SUBSCRIBE"), "who is denied need not ask each time")
		s.sleep(3 * time.Second)
		requireEmpty(t, s.hub)
		s.sleep(time.Hour)
		require.Equal(t, 1, s.sent("SUBSCRIBE"))
	})
}

func TestDenialOutlivesTheConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(deny("a"))
		s.hub.Subscribe("a")
		b := s.live("b")
		synctest.Wait()
		before := s.sent("SUBSCRIBE")
		s.conn().cut()
		s.sleep(time.Second)
		require.True(t, b.Live())
		require.Equal(t, before+1, s.sent("SUBSCRIBE"), "only b: the denied one would spoil it")

		s.onCommand(nil)
		s.sleep(31 * time.Second)
		require.ElementsMatch(t, []string{"a", "b"}, s.subscribed())
	})
}

func TestDeniedChannelGivenUpDuringAnOutageIsForgotten(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(deny("a"))
		a := s.hub.Subscribe("a")
		s.sleep(time.Second)
		s.setRefuse(true)
		s.conn().cut()
		s.sleep(time.Second)
		a.Close()
		requireEmpty(t, s.hub)
		s.sleep(time.Minute)
		dials := s.dialled()
		s.sleep(time.Hour)
		require.Equal(t, dials, s.dialled(), "nobody waits, nobody dials")
	})
}

func TestRefusedUnsubscribeIsLetGo(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.onCommand(func(verb string, _ []string) (string, bool) {
			return "NOPERM", verb == "UNSUBSCRIBE"
		})
		a, b := s.live("a"), s.live("b")
		a.Close()
		s.sleep(time.Minute)
		require.Equal(t, 1, s.sent("UNSUBSCRIBE"))
		require.Equal(t, 1, s.dialled())
		s.publish("a")
		s.publish("b")
		require.True(t, isWoken(b))
		b.Close()
		s.sleep(time.Minute)
		requireEmpty(t, s.hub)
		require.Empty(t, s.subscribed(), "the end of the idle connection ends it")
	})
}

// Somebody subscribes while an UNSUBSCRIBE is in flight that will be refused. Nobody knows what the
// server did, so the hub subscribes to the channel again.
func TestRefusedUnsubscribeOfAChannelThatIsUsedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		var again *Subscription
		s.onCommand(func(verb string, _ []string) (string, bool) {
			if verb == "UNSUBSCRIBE" {
				again = s.hub.Subscribe("a")
			}
			return "NOPERM", verb == "UNSUBSCRIBE"
		})
		a := s.live("a")
		s.live("b")
		before := s.sent("SUBSCRIBE")
		a.Close()
		s.sleep(3 * time.Second)
		require.Equal(t, before+1, s.sent("SUBSCRIBE"))
		require.True(t, again.Live())
		require.True(t, isWoken(again))
		s.publish("a")
		require.True(t, isWoken(again))
	})
}

func TestRefusedPingIsAnAnswer(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		a := s.live("a")
		s.onCommand(func(verb string, _ []string) (string, bool) { return "NOPERM", verb == "PING" })
		s.sleep(time.Hour)
		require.True(t, a.Live())
		require.Equal(t, 1, s.dialled())
	})
}

// New channels and parts of refused batches alternate.
func TestNewChannelsDoNotHoldUpRefusedBatches(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		refuse := deny("denied")
		slowly := func(verb string, channels []string) (string, bool) {
			if verb == "SUBSCRIBE" {
				time.Sleep(time.Millisecond)
			}
			return refuse(verb, channels)
		}
		s.onCommand(slowly)
		s.live("first")
		s.hub.Subscribe("denied")
		innocent := s.hub.Subscribe("innocent")
		for i := range 50 { // there is always a new channel
			s.hub.Subscribe(fmt.Sprint("new-", i))
			time.Sleep(500 * time.Microsecond)
			synctest.Wait()
		}
		require.True(t, innocent.Live())
	})
}

// The connection after a failed one begins with a PING. The user may lack the permission for it.
func TestRefusedPingRefusesNoChannel(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		s.setRefuse(true)
		sub := s.hub.Subscribe("a")
		s.sleep(10 * time.Millisecond)
		s.onCommand(func(verb string, _ []string) (string, bool) {
			return "NOPERM this user has no permissions to run the 'ping' command", verb == "PING"
		})
		s.setRefuse(false)
		s.sleep(time.Minute)
		require.True(t, sub.Live())
		require.Equal(t, 1, s.log.count(slog.LevelWarn), "no connection, and nothing else")
		require.Positive(t, s.sent("PING"))
	})
}

// Only the connection after one that could not be made begins with a PING, with which go-redis may
// connect to any node.
func TestAConnectionAfterAFailedOneBeginsWithAPing(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		var mu sync.Mutex
		var verbs []string
		begins := func() (first string) {
			mu.Lock()
			defer mu.Unlock()
			first, verbs = verbs[0], nil
			return first
		}
		s.onCommand(func(verb string, _ []string) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			if verb == "PING" || verb == "SUBSCRIBE" {
				verbs = append(verbs, verb)
			}
			return "", false
		})
		s.setRefuse(true)
		sub := s.hub.Subscribe("a")
		s.sleep(10 * time.Millisecond)
		s.setRefuse(false)
		s.sleep(10 * time.Second)
		require.True(t, sub.Live())
		require.Equal(t, "PING", begins())
		_ = s.conn().Close()
		s.sleep(10 * time.Second)
		require.True(t, sub.Live())
		require.Equal(t, "SUBSCRIBE", begins())
	})
}

// A service wants each channel in a command of its own. It refuses all of them for five seconds,
// because a slot moves, and ten of them for good. Soon after, the client has all others.
func TestAPassingRefusalDelaysManyChannelsOnlyOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		const all, denied = 1000, 10
		began := time.Now()
		s.onCommand(func(verb string, channels []string) (string, bool) {
			switch {
			case verb != "SUBSCRIBE":
				return "", false
			case len(channels) > 1:
				return "CROSSSLOT Keys in request don't hash to the same slot", true
			case time.Since(began) < 5*time.Second:
				return "CLUSTERDOWN The cluster is down", true
			case strings.HasPrefix(channels[0], "denied"):
				return "NOPERM no", true
			}
			return "", false
		})
		var others []*Subscription
		for i := range all {
			if i < denied {
				s.hub.Subscribe(fmt.Sprint("denied ", i))
				continue
			}
			others = append(others, s.hub.Subscribe(fmt.Sprint("channel ", i)))
		}
		s.sleep(time.Minute)
		missing := slices.DeleteFunc(others, (*Subscription).Live)
		require.Empty(t, len(missing))
	})
}

// Ready returns if there is no connection, or if Redis refuses the channel, and the caller asks
// Redis. So the first confirmation after that is a gap: a message may have come in between. Without
// trouble, it is none.
func TestAConfirmationAfterReadyReturnedIsAGap(t *testing.T) {
	for name, trouble := range map[string]func(s *sim) (end func()){
		"none":          func(*sim) func() { return func() {} },
		"no connection": func(s *sim) func() { s.setRefuse(true); return func() { s.setRefuse(false) } },
		"no answer": func(s *sim) func() {
			s.onCommand(func(verb string, _ []string) (string, bool) { return "", verb == "SUBSCRIBE" })
			return func() { s.onCommand(nil) }
		},
		"refused channel": func(s *sim) func() { s.onCommand(deny("a")); return func() { s.onCommand(nil) } },
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", found before: ", before), func(t *testing.T) {
				simulate(t, func(t *testing.T, s *sim) {
					end := trouble(s)
					if before {
						sub := s.hub.Subscribe("b")
						defer sub.Close()
						require.NoError(t, sub.Ready(t.Context()))
					}
					missed := 0
					sub := s.hub.Listen("a", func(string) {}, func() { missed++ })
					require.NoError(t, sub.Ready(t.Context()))
					require.Equal(t, name == "none", sub.Live())
					require.Zero(t, missed)
					end()
					s.sleep(time.Minute)
					require.True(t, sub.Live())
					require.Equal(t, name != "none", missed > 0)
				})
			})
		}
	}
}
