package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const echoes = "echoes"

// post sends the echoes of a sim, and the messages of others, until it loses or delays them.
type post struct {
	mu     sync.Mutex
	sent   int // echoes
	lost   bool
	delay  time.Duration // of messages
	takes  time.Duration // until Echo returns
	slow   int           // each echo of that number is delayed by 1.2 s; 0: none is
	result error
	panics bool
}

func (p *post) set(change func(p *post)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// lose loses all echoes from now on, and returns when the next one has been sent.
func (p *post) lose(s *sim) {
	p.set(func(p *post) { p.lost = true })
	for before := p.count(); p.count() == before; s.sleep(time.Millisecond) {
	}
}

func (p *post) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// echoing runs a test on a hub with echoes.
func echoing(t *testing.T, test func(t *testing.T, s *sim, p *post), mods ...func(*Config)) {
	t.Helper()
	p := &post{}
	var s *sim
	echo := func(c *Config) {
		c.EchoChannel = echoes
		c.Echo = func(ctx context.Context, text string) error {
			p.mu.Lock()
			p.sent++
			lost, delay, takes, result, panics := p.lost, p.delay, p.takes, p.result, p.panics
			if p.slow > 0 && p.sent%p.slow == 0 {
				delay = 1200 * time.Millisecond
			}
			p.mu.Unlock()
			if panics {
				panic("a hook")
			}
			if !lost && result == nil {
				if delay == 0 {
					_ = s.ops.Publish(context.Background(), echoes, text).Err()
				} else {
					time.AfterFunc(delay, func() { s.mini.Publish(echoes, text) })
				}
			}
			select {
			case <-time.After(takes):
				return result
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	simulate(t, func(t *testing.T, got *sim) {
		s = got
		test(t, s, p)
	}, append([]func(*Config){echo}, mods...)...)
}

func TestEchoesKeepTheConnectionThatGetsThem(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		a := s.live("a")
		isWoken(a)
		s.sleep(time.Second)
		require.NotContains(t, s.subscribed(), echoes, "a short wait costs none")
		s.sleep(time.Hour)
		require.InDelta(t, 3600/1.25, p.count(), 100)
		require.Equal(t, 1, s.dialled())
		require.False(t, isWoken(a), "an echo wakes nobody")
		require.Zero(t, s.log.count(slog.LevelWarn))
	})
}

func TestNoEchoesWhileNobodyWaits(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		a := s.live("a")
		s.sleep(10 * time.Second)
		a.Close()
		s.sleep(2 * time.Second)
		before := p.count()
		require.NotZero(t, before)
		require.Empty(t, s.subscribed(), "nothing is left")
		s.sleep(10 * time.Second) // the connection stays for a while
		s.live("a").Close()
		s.sleep(time.Hour)
		require.Equal(t, before, p.count())
	})
}

func TestAConnectionThatGetsNoMessagesIsReplaced(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		a := s.live("a")
		s.sleep(10 * time.Second)
		isWoken(a)
		old := s.conn()
		p.lose(s)
		s.sleep(time.Second - 2*time.Millisecond)
		require.False(t, old.isClosed(), "an echo may take that long")
		s.sleep(4 * time.Millisecond)
		require.True(t, old.isClosed())
		p.set(func(p *post) { p.lost = false })
		s.sleep(100 * time.Millisecond)
		require.True(t, isWoken(a), "messages may have been lost")
		require.True(t, a.Live())
		require.Equal(t, 2, s.dialled())
		require.Equal(t, 1, s.log.count(slog.LevelWarn))

		s.sleep(time.Hour)
		require.Equal(t, 2, s.dialled())
		require.Equal(t, 1, s.log.count(slog.LevelWarn))
		require.Equal(t, 1, s.log.count(slog.LevelInfo), "it is over")
	})
}

// A proxy, a hook or a managed service may begin to drop the echoes. Waiters still get their
// messages.
func TestEchoesThatStayAwayDoNotReplaceOneConnectionAfterTheOther(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		s.live("a")
		s.sleep(10 * time.Second)
		p.set(func(p *post) { p.lost = true })
		s.sleep(24 * time.Hour)
		require.Less(t, s.dialled(), 24*12+10, "one in five minutes")
		require.Equal(t, 1, s.log.count(slog.LevelWarn))

		p.set(func(p *post) { p.lost = false })
		s.sleep(10 * time.Minute)
		before := s.dialled()
		p.lose(s)
		s.sleep(1100 * time.Millisecond)
		require.Equal(t, before+1, s.dialled(), "echoes that come back restore the time limit")
	})
}

func TestEchoesThatNeverCameProveNothing(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		p.lost = true
		a := s.live("a")
		s.sleep(time.Hour)
		require.True(t, a.Live())
		require.Equal(t, 1, s.dialled())
		require.Less(t, p.count(), 125, "and are sent seldom")
		require.Zero(t, s.log.count(slog.LevelWarn))
	})
}

func TestRefusedEchoesAreSeldomSent(t *testing.T) {
	for name, refuse := range map[string]func(s *sim, p *post){
		"publish":   func(_ *sim, p *post) { p.result = fmt.Errorf("%w: NOPERM", ErrEchoRefused) },
		"subscribe": func(s *sim, _ *post) { s.onCommand(deny(echoes)) },
	} {
		t.Run(name, func(t *testing.T) {
			echoing(t, func(t *testing.T, s *sim, p *post) {
				refuse(s, p)
				for range 1000 {
					a := s.live("a")
					s.sleep(2 * time.Second)
					a.Close()
					s.sleep(4 * time.Second) // the next one subscribes anew
				}
				require.Less(t, p.count(), 6000/30+2)
				require.Less(t, s.sent("SUBSCRIBE"), 1000+2*6000/30+2)
				require.Equal(t, 1, s.dialled())
				require.Zero(t, s.log.count(slog.LevelWarn), "waiters do not miss anything")
			})
		})
	}
}

func TestARefusedEchoChannelSpoilsNoOther(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, _ *post) {
		s.onCommand(deny(echoes))
		a := s.live("a")
		s.sleep(time.Hour)
		require.True(t, a.Live())
		require.Less(t, s.sent("SUBSCRIBE"), 125)
		s.onCommand(nil)
		s.sleep(31 * time.Second)
		require.Contains(t, s.subscribed(), echoes)
	})
}

func TestEchoesThatFailProveNothing(t *testing.T) {
	for name, fail := range map[string]func(p *post){
		"error":    func(p *post) { p.result = errors.New("no connection") },
		"panic":    func(p *post) { p.panics = true },
		"hanging":  func(p *post) { p.lost, p.takes = true, 24*time.Hour },
		"slow":     func(p *post) { p.takes = time.Minute },
		"together": func(p *post) { p.result, p.takes = errors.New("no connection"), time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			echoing(t, func(t *testing.T, s *sim, p *post) {
				a := s.live("a")
				s.sleep(10 * time.Second)
				isWoken(a)
				p.set(fail)
				s.sleep(time.Hour)
				require.Equal(t, 1, s.dialled())
				require.False(t, isWoken(a))
				p.set(func(p *post) { p.result, p.panics, p.takes, p.lost = nil, false, 0, false })
				s.sleep(2 * time.Minute)
				require.Equal(t, 1, s.dialled())
			})
		})
	}
}

// Messages that come late are not lost. The time limit adapts to them.
func TestSlowEchoesReplaceFewConnections(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		s.live("a")
		s.sleep(10 * time.Second)
		p.set(func(p *post) { p.delay = 10 * time.Second })
		s.sleep(time.Hour)
		require.LessOrEqual(t, s.dialled(), 5, "1 s, 2 s, 4 s and 8 s were too short")
	})
}

// In a cluster, a server that is busy now and then delays some echoes, and its other messages.
func TestNowAndThenASlowEchoReplacesFewConnections(t *testing.T) {
	for _, slow := range []int{1, 2, 4, 8, 16, 64} {
		t.Run(fmt.Sprint("one of ", slow), func(t *testing.T) {
			echoing(t, func(t *testing.T, s *sim, p *post) {
				s.live("a")
				p.set(func(p *post) { p.slow = slow })
				s.sleep(time.Hour)
				require.LessOrEqual(t, s.dialled(), 3)
				p.set(func(p *post) { p.slow = 0 })
				s.sleep(10 * time.Minute)
				before := s.dialled()
				p.lose(s)
				s.sleep(1100 * time.Millisecond)
				require.Equal(t, before+1, s.dialled(), "the hub forgets that they were slow")
			})
		})
	}
}

// The process is stopped, as by SIGSTOP: the messages wait in the socket, and timers fire first.
func TestAnEchoThatWaitsInTheSocketCounts(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		a := s.live("a")
		s.sleep(10 * time.Second)
		isWoken(a)
		s.conn().hold(time.Now().Add(5 * time.Second)) // an echo is overdue for more than a second
		s.sleep(time.Minute)
		require.Equal(t, 1, s.dialled())
		require.False(t, isWoken(a))
	}, func(c *Config) { c.ping = 10 * time.Second })
}

func TestARefusedPingEndsADeafConnectionToo(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		s.live("a")
		s.onCommand(func(verb string, _ []string) (string, bool) { return "NOPERM no ping", verb == "PING" })
		s.sleep(10 * time.Second)
		require.Equal(t, 1, s.dialled())
		p.lose(s)
		s.sleep(1100 * time.Millisecond)
		require.Equal(t, 2, s.dialled())
	})
}

func TestOnDeafComesBeforeTheNextConnection(t *testing.T) {
	dials := make(chan int, 1)
	var s *sim
	echoing(t, func(t *testing.T, got *sim, p *post) {
		s = got
		got.live("a")
		got.conn().cut()
		got.sleep(10 * time.Second)
		require.Empty(t, dials, "a broken connection is not deaf")
		p.lose(got)
		got.sleep(1100 * time.Millisecond)
		require.Len(t, dials, 1)
		require.Equal(t, 2, <-dials)
		require.Equal(t, 3, got.dialled())
	}, func(c *Config) {
		c.OnTopologyDoubt = func(context.Context) { dials <- s.dialled() }
	})
}

func TestCloseEndsAnEcho(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		p.takes = time.Hour
		s.live("a")
		s.sleep(5 * time.Second)
		require.Equal(t, 1, p.count())
		began := time.Now()
		s.hub.Close()
		require.Zero(t, time.Since(began))
	})
}

func TestAHubWithoutPermissionToUnsubscribeKeepsTheEchoChannel(t *testing.T) {
	echoing(t, func(t *testing.T, s *sim, p *post) {
		s.onCommand(func(verb string, _ []string) (string, bool) { return "NOPERM no unsubscribe", verb == "UNSUBSCRIBE" })
		s.live("a").Close()
		b := s.live("b")
		s.sleep(10 * time.Second)
		b.Close()
		s.sleep(10 * time.Second)
		require.Less(t, s.sent("UNSUBSCRIBE"), 5)
		before := p.count()
		s.live("c")
		s.sleep(10 * time.Second)
		require.Greater(t, p.count(), before, "it works again")
		require.Equal(t, 1, s.dialled())
	})
}

// The hub closes while the server confirms the end of the echoes.
func TestAConfirmationOfEchoesAfterCloseDoesNoHarm(t *testing.T) {
	for _, end := range []string{"close", "disconnect"} {
		for _, verb := range []string{"subscribe", "unsubscribe"} {
			t.Run(verb+" after "+end, func(t *testing.T) {
				cfg := Config{Echo: func(context.Context, string) error { return nil }, EchoChannel: echoes}.withDefaults()
				now := time.Now()
				r := newHubState(cfg)
				r.onConnecting()
				r.echo.at = now
				r.channels["door"] = &channel{name: "door", state: subscribed}
				require.NotNil(t, r.next(now), "it subscribes to the echoes")
				if verb == "unsubscribe" {
					r.onConfirmation("subscribe", echoes, now)
					delete(r.channels, "door")
					require.NotNil(t, r.next(now), "it ends the echoes")
				}
				if end == "close" {
					r.close()
				} else {
					r.onDisconnect(errIdle, now)
				}
				r.onConfirmation(verb, echoes, now)
				require.Nil(t, r.inFlight)
			})
		}
	}
}
