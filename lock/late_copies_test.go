package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a late copy of a command reaches the server after later commands of the
// same client. It does not change anything that a later acquisition needs. The proxy holds back a
// command, or a copy of it, and releases it later.

func TestLateCopiesDoNotTouchALaterAcquisition(t *testing.T) {
	ctx := context.Background()
	cases := map[string]func(s *stage.Scene) (kept *redistest.Fault){
		"acquire": func(s *stage.Scene) *redistest.Fault {
			kept := s.Copies(stage.AnAcquire)
			s.Unlock(s.Lock(ctx))
			return kept
		},
		"re-entry": func(s *stage.Scene) *redistest.Fault {
			outer := s.Lock(ctx)
			kept := s.Copies(stage.AReentry)
			s.Unlock(s.Lock(outer.Context()))
			s.Unlock(outer)
			return kept
		},
		"inner release": func(s *stage.Scene) *redistest.Fault {
			outer := s.Lock(ctx)
			inner := s.Lock(outer.Context())
			kept := s.Copies(stage.AnInnerOne)
			s.Unlock(inner)
			s.Unlock(outer)
			return kept
		},
		"last release": func(s *stage.Scene) *redistest.Fault {
			h := s.Lock(ctx)
			kept := s.Copies(stage.ALastOne)
			s.Unlock(h)
			return kept
		},
		"transfer": func(s *stage.Scene) *redistest.Fault {
			first := s.Lock(ctx)
			second := s.Wait()
			kept := s.Copies(stage.ATransfer)
			s.Unlock(first)
			s.Unlock(<-second)
			return kept
		},
		"renew": func(s *stage.Scene) *redistest.Fault {
			h := s.Lock(ctx)
			kept := s.Copies(stage.ARenewal)
			time.Sleep(15 * time.Second)
			s.Unlock(h)
			return kept
		},
	}
	for name, play := range cases {
		for when, wait := range map[string]time.Duration{"soon": 0, "past its end": stage.PastItsEnd} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					s.Unlock(s.Lock(ctx)) // the client learns the server's clock
					kept := play(s)
					time.Sleep(wait)
					h := s.Lock(ctx) // the same client, the same lock, another grant
					time.Sleep(5 * time.Second)
					ttl := s.TTL()
					for _, found := range s.LetGo(kept) {
						require.LessOrEqual(t, found, int64(0), "the copy did something")
					}
					s.Holds(h, 1)
					require.Equal(t, ttl, s.TTL(), "neither longer nor shorter")
					require.True(t, h.Trusted())
					s.Unlock(h)
					s.NothingLeft()
				})
			})
		}
	}
}

// TTL is the rest of the lease in Redis.

// A late copy sets an old number of holds in Redis, and changes nothing else. The client counts its
// holds, and its next command corrects the number.
func TestLateNumbersDoNotFreeTheLock(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		first := s.Lock(ctx)
		second := s.Lock(first.Context())
		kept := s.Copies(stage.AnInnerOne)
		s.Unlock(second) // one left
		third := s.Lock(first.Context())
		fourth := s.Lock(first.Context())
		s.LetGo(kept)
		s.Holds(first, 1) // the number of the copy, although there are three holds
		s.Unlock(third)
		s.Holds(first, 2)
		s.Unlock(fourth)
		s.Holds(first, 1)
		s.Unlock(first)
		s.Free()
		s.NothingLeft()
	})
}

// An inner release is held back, and the client sends the number again. Past its end, the first
// command sets no number any more. Nobody would correct it before the next command of the lock.
func TestALateNumberOfHoldsIsVoid(t *testing.T) {
	ctx := context.Background()
	for name, unlock := range map[string]func(s *stage.Scene, outer *lock.Hold){
		"unlock": func(s *stage.Scene, outer *lock.Hold) { s.Unlock(s.Lock(outer.Context())) },
		"do": func(s *stage.Scene, outer *lock.Hold) {
			require.NoError(s.T, s.Mutex.Do(outer.Context(), func(context.Context) error { return nil }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				outer := s.Lock(ctx)
				s.Unlock(s.Lock(outer.Context())) // the server learns the script
				kept := s.Proxy.Inject(redistest.Rule{Match: stage.AnInnerOne, Times: 1, Action: redistest.HoldBack()})
				unlock(s, outer)
				require.Equal(t, 1, kept.Bites())
				time.Sleep(stage.PastItsEnd)
				s.Holds(outer, 1)
				inner := s.Lock(outer.Context())
				require.Equal(t, []int64{-2}, s.LetGo(kept))
				s.Holds(inner, 2)
				s.Unlock(inner)
				s.Unlock(outer)
				s.NothingLeft()
			})
		})
	}
}

// The server's clock has been set forward, so an inner release comes after the end that the client
// guessed. The answer has the time, and the client asks again.
func TestAVoidNumberOfHoldsIsSentAgain(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		server := redistest.Bubble(t)
		s := stage.NewScene(t, server.Proxy, server.Client(), server.Client())
		s.Settle = synctest.Wait
		outer := s.Lock(ctx)
		inner := s.Lock(outer.Context())
		server.Server.SetTime(time.Now().Add(20 * time.Second))
		s.Unlock(inner)
		s.Holds(outer, 1)
		s.Unlock(outer)
		s.NothingLeft()
	})
}

// An attempt of the background to send the number is held back, go-redis soon gives it up, and the
// next one is answered. Before its end, the first one still sets the old number. The background
// sends the right one after that end.
func TestTheBackgroundSendsTheNumberAfterItsOwnLateAttempt(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubbleOf(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
		outer := s.Lock(ctx)
		s.Unlock(s.Lock(outer.Context())) // the server learns the script
		refused := s.Proxy.Inject(redistest.Rule{Match: stage.AnInnerOne, Times: 1, Action: redistest.Refuse("LOADING Redis is loading the dataset in memory")})
		kept := s.Proxy.Inject(redistest.Rule{Match: stage.AnInnerOne, Times: 1, Action: redistest.HoldBack()})
		require.NoError(t, s.Mutex.Do(outer.Context(), func(context.Context) error { return nil }))
		require.Equal(t, 1, refused.Bites())
		kept.Await(1)
		s.Proxy.ResetCounts()
		for s.Proxy.Forwarded("EVALSHA") == 0 { // until Redis has answered the next attempt
			time.Sleep(time.Millisecond)
		}
		middle := s.Lock(outer.Context())
		require.Equal(t, []int64{2}, s.LetGo(kept), "it comes before its end")
		s.Holds(outer, 1) // the number of the late attempt, although there are two holds
		time.Sleep(stage.PastItsEnd)
		s.Holds(middle, 2)
		s.Unlock(middle)
		s.Unlock(outer)
		s.NothingLeft()
	})
}

// A command was held back, and the client sent it again, so nobody waits for its grant any more.
// After its end, it grants nothing. Before its end, it grants one lease without renewal, which the
// client releases soon after that end.
func TestLateOriginalOfAnAcquire(t *testing.T) {
	ctx := context.Background()
	heldBack := func(t *testing.T, s *stage.Scene) *redistest.Fault {
		s.Unlock(s.Lock(ctx))
		kept := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.HoldBack()})
		h := s.Lock(ctx) // sent again after the time limit of the first attempt
		require.Equal(t, 1, kept.Bites())
		s.Unlock(h)
		s.Free()
		return kept
	}
	t.Run("past its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			kept := heldBack(t, s)
			time.Sleep(stage.PastItsEnd)
			require.Equal(t, []int64{-2}, s.LetGo(kept))
			s.Free()
			s.NothingLeft()
		})
	})
	t.Run("while another client has the lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := stage.InBubble(t)
			kept := heldBack(t, s)
			require.NoError(t, s.Direct.HSet(ctx, s.Name, "somebody:1", 1).Err())
			s.LetGo(kept)
			require.Equal(t, map[string]string{"somebody:1": "1"}, s.Stored())
			require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
		})
	})
}

// The caller left while its command was in flight. The command arrives before its end, and after
// the first clean-up.
func TestLateGrantLivesNotMuchLongerThanItsCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Unlock(s.Lock(context.Background()))
		kept := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.HoldBack()})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait() // the first clean-up has found nothing
		require.Equal(t, []int64{1}, s.LetGo(kept), "the ghost must be there for the test to mean anything")
		require.Len(t, s.Stored(), 1)
		time.Sleep(stage.PastItsEnd)
		synctest.Wait()
		s.Free()
		s.NothingLeft()
	})
}

// A transfer arrives after everything about it was given up.
func TestLateTransferGrantsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		first := s.Lock(context.Background())
		got := make(chan *lock.Hold, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			h, _ := s.Mutex.Lock(ctx)
			got <- h
		}()
		synctest.Wait()
		kept := s.Proxy.Inject(redistest.Rule{Match: stage.ATransfer, Times: 1, Action: redistest.HoldBack()})
		unlocked := make(chan error, 1)
		go func() { unlocked <- first.Unlock(context.Background()) }()
		synctest.Wait()
		cancel() // the waiter gives up while the lock is being handed to it
		require.NoError(t, <-unlocked, "sent again, and answered")
		require.Nil(t, <-got)
		synctest.Wait()
		s.Free()
		for _, found := range s.LetGo(kept) {
			require.Less(t, found, int64(0))
		}
		time.Sleep(stage.PastItsEnd)
		s.Free()
		s.NothingLeft()
	})
}

// An Unlock fails, and the background releases the lock. A late original of the acquire then takes
// it again, for nobody. The background releases that too, long before the lease ends.
func TestALateAcquireIsReleasedAfterAFailedUnlock(t *testing.T) {
	for kind, primitive := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				_, release, err := primitive.Take(s.Locks, t.Context())
				require.NoError(t, err)
				require.NoError(t, release(t.Context())) // now the client knows the clock of the server
				late := s.HoldBack(stage.AnyScript)
				go func() {
					late.Await(1)
					s.Proxy.Kill(redistest.CommandTraffic) // so that the client asks again immediately
				}()
				_, release, err = primitive.Take(s.Locks, t.Context())
				require.NoError(t, err)
				loading := s.Proxy.Inject(redistest.Rule{Match: stage.AnyScript, Action: redistest.Refuse("LOADING no")})
				bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, release(bounded), redlatch.ErrUnavailable)
				loading.Disarm()
				time.Sleep(time.Second)
				const void = -2
				require.NotContains(t, s.LetGo(late), int64(void))
				time.Sleep(5 * time.Second)
				try, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err = primitive.Take(s.Locks, try)
				require.NoError(t, err)
			})
		})
	}
}
