package reentrant_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// With messages, a hand-over takes no time. Without messages, it takes a poll, and each waiter gets
// the lock.
func TestLostWakesCostAPollEachAndNothingElse(t *testing.T) {
	t.Parallel()
	const poll = 2 * time.Second
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				var clients [2]*stage.Actor
				for i := range clients {
					clients[i] = s.Actor(redlatch.WithPollInterval(poll))
					if lost {
						clients[i].Net.OnRead(func(_ *stage.Wire, b []byte) bool { return !isMessage(b) })
					}
				}
				hold := clients[0].Lock("door")
				for i := range 20 {
					next := clients[(i+1)%2]
					waits := next.Begin(next.Ctx, "door")
					time.Sleep(poll / 3) // in the middle of its sleep
					s.Unlock(hold)
					freed := time.Now()
					hold = waits.Got()
					took := time.Since(freed)
					if lost {
						require.Positive(t, took, "round %d: it was notified after all", i)
						require.LessOrEqual(t, took, poll, "round %d", i)
					} else {
						require.Zero(t, took, "round %d", i)
					}
				}
				s.Unlock(hold)
			})
		})
	}
}

// The release comes in the gap between two pub/sub connections. Nobody gets its message, and the
// poll bound is very long. Only the new subscription can wake up the waiter.
func TestReleaseWhileResubscribingIsNotMissed(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		hold := a.Lock("door")
		waits := b.Begin(b.Ctx, "door").Asked(2)

		gate := make(chan struct{})
		b.Net.OnDial(func() { <-gate })
		b.Net.Cut((*stage.Wire).Subscribes)
		waits.Asked(3) // the lost connection wakes it up, and the lock is still held
		s.Unlock(hold)
		require.Zero(s, b.Net.Subscribers(), "nobody may have subscribed")
		close(gate)
		s.Unlock(waits.Got())
	})
}

func TestKilledSubscriptionsDoNotKeepWaitersFromTheLock(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		a := s.Actor()
		for range 8 {
			b := s.Actor() // a new one each time, because the pause before the next connection grows
			hold := a.Lock("door")
			waits := b.Begin(b.Ctx, "door").Asked(2)
			stop := make(chan struct{})
			var killer sync.WaitGroup
			killer.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_ = s.Admin.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
					}
				}
			})
			s.Unlock(hold)
			close(stop)
			killer.Wait()
			s.Unlock(waits.Got())
		}
	})
}

// A connection is open but dead. go-redis writes its pings, and does not notice that the answers
// are missing.
func TestSilentSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		hold := a.Lock("door")
		waits := b.Begin(b.Ctx, "door").Asked(2)
		b.Net.BlackHole((*stage.Wire).Subscribes)
		s.Unlock(hold)
		hold = waits.Got() // by the new subscription, because the poll bound is very long

		dead := b.Net.Conns((*stage.Wire).IsDead)
		require.Empty(s, dead, "the dead connection is still open")
		s.Await("it listens again", func() bool { return b.Net.Subscribers() == 1 && len(s.Channels()) == 1 })
		waits = a.Begin(a.Ctx, "door").Asked(2)
		s.Unlock(hold)
		hold = waits.Got()
		waits = b.Begin(b.Ctx, "door").Asked(2)
		freed := time.Now()
		s.Unlock(hold)
		s.Unlock(waits.Got())
		if s.Virtual {
			require.Zero(s, time.Since(freed), "the new one hears")
		}
	})
}

func TestLocksWorkByPollingWherePubSubIsDenied(t *testing.T) {
	t.Parallel()
	for _, denied := range []struct {
		name  string
		rules []any
		whose int // 0: the client that unlocks, 1: the client that waits
		logs  []string
	}{
		{"PUBLISH", []any{"-publish"}, 0, []string{"publish releases"}},
		{"SUBSCRIBE", []any{"-subscribe"}, 1, []string{"pub/sub refused"}},
		{"the channel to who waits", []any{"resetchannels"}, 1, []string{"publish releases", "pub/sub refused"}},
		{"the channel to who unlocks", []any{"resetchannels"}, 0, []string{"publish releases"}},
	} {
		t.Run(denied.name, func(t *testing.T) {
			t.Parallel()
			stage.OnServer(t, func(s *stage.Stage) {
				const poll = 20 * time.Millisecond
				rules := append([]any{"ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all"}, denied.rules...)
				require.NoError(s, s.Admin.Do(s.Context(), rules...).Err())
				other := []any{"ACL", "SETUSER", "free", "on", ">free", "~*", "&*", "+@all"}
				require.NoError(s, s.Admin.Do(s.Context(), other...).Err())
				var clients [2]*stage.Actor
				for i := range clients {
					var mods []func(*redis.Options)
					if i != denied.whose {
						mods = append(mods, func(o *redis.Options) { o.Username, o.Password = "free", "free" })
					}
					clients[i] = s.ActorAs(mods, redlatch.WithPollInterval(poll))
				}
				for i := range 6 { // several rounds, and several names
					name := fmt.Sprint("door", i%2)
					hold := clients[0].Lock(name)
					waits := clients[1].Begin(clients[1].Ctx, name).Asked(2)
					s.Unlock(hold)
					s.Unlock(waits.Got())
				}
				lines := clients[denied.whose].Log.Lines()
				require.Len(s, lines, len(denied.logs), "each thing once")
				for i, log := range denied.logs {
					require.Contains(s, lines[i], log)
				}
				require.Empty(s, clients[1-denied.whose].Log.Lines())
			})
		})
	}
}

func TestManyContendedNamesTakeOneSubscriptionConnection(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		const names = 1000
		a, b := s.Actor(), s.Actor()
		var holds []*lock.Hold
		for i := range names {
			holds = append(holds, a.Lock(fmt.Sprint("door", i)))
		}
		var waits []*stage.Asking
		for i := range names {
			waits = append(waits, b.Begin(b.Ctx, fmt.Sprint("door", i)))
		}
		s.Await("everything is subscribed", func() bool {
			all := s.Channels()
			return len(slices.DeleteFunc(all, func(c string) bool { return strings.Contains(c, "redlatch-echo") })) == names
		})
		require.Len(s, s.PubSubClients(), 1)
		for _, h := range holds {
			s.Unlock(h)
		}
		for _, w := range waits {
			s.Unlock(w.Got())
		}
		s.Await("nothing is subscribed any more", func() bool { return len(s.Channels()) == 0 })
		require.LessOrEqual(s, len(s.PubSubClients()), 1)
	})
}

// The lock is released after the first attempt and before the subscription. Or it is released after
// the server has subscribed and before the client knows that.
func TestReleaseBetweenAttemptAndSubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"request", "confirmation"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			stage.OnBoth(t, func(s *stage.Stage) {
				a, b := s.Actor(), s.Actor()
				hold := a.Lock("door")
				reached, gate := make(chan struct{}), make(chan struct{})
				pause := sync.OnceFunc(func() { close(reached); <-gate })
				if at == "request" {
					b.Net.OnWrite(func(_ *stage.Wire, p []byte) bool {
						if stage.IsSubscribe(p) {
							pause()
						}
						return true
					})
				} else {
					b.Net.OnRead(func(w *stage.Wire, p []byte) bool {
						if w.Subscribes() && bytes.Contains(p, []byte("subscribe\r\n")) {
							pause()
						}
						return true
					})
				}
				start := time.Now()
				waits := b.Begin(b.Ctx, "door")
				s.Receive(reached, "SUBSCRIBE is under way")
				s.Unlock(hold)
				close(gate)
				s.Unlock(waits.Got())
				if s.Virtual {
					require.Zero(s, time.Since(start))
				}
			})
		})
	}
}

// A crashed holder sends no message, and there is none for the end of its lease.
func TestLockOfACrashedHolderIsFoundAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const lease = 5 * time.Second
		a, b := s.Actor(redlatch.WithLease(lease)), s.Actor()
		locked := time.Now()
		a.Lock("door")
		a.Die()
		s.Unlock(b.Begin(b.Ctx, "door").Got())
		require.GreaterOrEqual(t, time.Since(locked), lease)
		require.LessOrEqual(t, time.Since(locked), lease+10*time.Millisecond)
	})
}

// A flood of messages on the channel does not make the waiter flood Redis. The waiter still gets
// the true message among them.
func TestForgedWakesAreBounded(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		const flood = 20 * time.Second
		a, b := s.Actor(), s.Actor()
		hold := a.Lock("door")
		waits := b.Begin(b.Ctx, "door").Asked(2)
		before := b.Scripts.Load()
		for start := time.Now(); time.Since(start) < flood; time.Sleep(time.Millisecond) {
			s.Sim.Publish("redisson_lock__channel:{door}", "0")
		}
		asked := b.Scripts.Load() - before
		require.LessOrEqual(t, asked, int64(flood/(100*time.Millisecond))+20, "once each 100 ms, after a few")
		require.Greater(t, asked, int64(50), "they are served")
		freed := time.Now()
		s.Unlock(hold)
		s.Unlock(waits.Got())
		require.LessOrEqual(t, time.Since(freed), 100*time.Millisecond)
	})
}

// A lock may have no end, or one that is years away, as after a step of the server's clock. A
// waiter asks about such a lock at the rate of the poll, no faster and no slower.
func TestLeaseThatNeverEndsIsPolledFor(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"no end": 0, "ten years": 10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				const poll, rounds = 2 * time.Second, 10
				b := s.Actor(redlatch.WithPollInterval(poll))
				s.Sim.HSet("door", "someone:1", "1")
				if ttl > 0 {
					s.Sim.SetTTL("door", ttl)
				}
				before := b.Scripts.Load()
				waits := b.Begin(b.Ctx, "door")
				time.Sleep(rounds * poll)
				synctest.Wait()
				asked := b.Scripts.Load() - before
				require.GreaterOrEqual(t, asked, int64(rounds))
				require.LessOrEqual(t, asked, int64(rounds*5/4+3), "a fifth of each poll is chance")
				s.Sim.Del("door") // without a message
				gone := time.Now()
				s.Unlock(waits.Got())
				require.LessOrEqual(t, time.Since(gone), poll)
			})
		})
	}
}

func TestRefusalByALockWithoutEndSaysSo(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		b := s.Actor()
		s.Sim.HSet("door", "someone:1", "1")
		_, err := b.Mutex("door").TryLock(b.Ctx)
		var refused *redlatch.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.Negative(t, refused.Remaining)
		require.NotContains(t, err.Error(), "for -")
	})
}

// Only one waiter of a client asks. So a release costs one command, for any number of waiters.
func TestManyWaitersOfAProcessAskAsOne(t *testing.T) {
	t.Parallel()
	stage.OnBoth(t, func(s *stage.Stage) {
		const waiters = 200
		a, b := s.Actor(), s.Actor()
		hold := a.Lock("door")
		before := b.Scripts.Load()
		ctx, cancel := context.WithCancel(b.Ctx)
		first := b.Begin(ctx, "door").Asked(2)
		got := make(chan *lock.Hold, waiters)
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() {
				if h, err := b.Mutex("door").Lock(ctx); err == nil {
					got <- h
				}
			})
		}
		s.Settle()
		require.Equal(s, int64(2), b.Scripts.Load()-before, "all of them wait")
		s.Unlock(hold)
		h := first.Got()
		s.Settle()
		require.Equal(s, int64(3), b.Scripts.Load()-before, "one release, one question")
		require.Empty(s, got)
		cancel()
		all.Wait()
		s.Unlock(h)
	})
}

// OnBoth runs a test in virtual time, and on a real server.

// NewClient makes a go-redis client whose connections are wires.

// ActorAs makes an actor whose go-redis client has other options.

// End closes the client of the actor.

// Lock waits for a mutex.

// Unlock releases a hold.

// Begin calls Lock in a goroutine of its own.

// Got waits until Lock returns a hold.

// Failed waits until Lock returns an error.

// Pending reports whether Lock has not returned yet.

// Channels are the channels that somebody listens to.

// PubSubClients are the connections that listen.

// OnRead lets f observe received data.
// OnWrite lets f observe sent data.

// Subscribers is the number of connections that have sent SUBSCRIBE.

// Wire is one connection.

// Subscribes reports whether the connection has sent SUBSCRIBE.
// IsDead reports whether the connection swallows all data.

// IsSubscribe reports whether p has a SUBSCRIBE.
func isMessage(p []byte) bool { return bytes.Contains(p, []byte("\r\nmessage\r\n")) }

// Lines are the lines so far.
