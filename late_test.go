package redlatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: a late copy of a command reaches the server after later commands of the
// same client. It does not change anything that a later acquisition needs. The proxy holds back a
// command, or a copy of it, and releases it later.

// copies keeps a copy of the next command of a kind. The command itself passes.
func (s *scene) copies(kind func([]string) bool) *redistest.Fault {
	return s.proxy.Inject(redistest.Rule{Match: kind, Times: 1, Action: redistest.Duplicate()})
}

// letGo sends the commands that the fault kept. It returns the first number of each reply, which is
// what the script found.
func (s *scene) letGo(kept *redistest.Fault) []int64 {
	s.t.Helper()
	require.Equal(s.t, 1, kept.Late(), "there is a copy to send")
	var found []int64
	for _, reply := range kept.Release() {
		fields, ok := reply.([]any)
		require.True(s.t, ok, "%v", reply)
		found = append(found, fields[0].(int64))
	}
	s.settle()
	return found
}

const pastItsEnd = 3 * time.Second // longer than a command stays valid

func TestLateCopiesDoNotTouchALaterAcquisition(t *testing.T) {
	ctx := context.Background()
	cases := map[string]func(s *scene) (kept *redistest.Fault){
		"acquire": func(s *scene) *redistest.Fault {
			kept := s.copies(anAcquire)
			s.unlock(s.lock(ctx))
			return kept
		},
		"re-entry": func(s *scene) *redistest.Fault {
			outer := s.lock(ctx)
			kept := s.copies(aReentry)
			s.unlock(s.lock(outer.Context()))
			s.unlock(outer)
			return kept
		},
		"inner release": func(s *scene) *redistest.Fault {
			outer := s.lock(ctx)
			inner := s.lock(outer.Context())
			kept := s.copies(anInnerOne)
			s.unlock(inner)
			s.unlock(outer)
			return kept
		},
		"last release": func(s *scene) *redistest.Fault {
			h := s.lock(ctx)
			kept := s.copies(aLastOne)
			s.unlock(h)
			return kept
		},
		"transfer": func(s *scene) *redistest.Fault {
			first := s.lock(ctx)
			second := s.wait()
			kept := s.copies(aTransfer)
			s.unlock(first)
			s.unlock(<-second)
			return kept
		},
		"renew": func(s *scene) *redistest.Fault {
			h := s.lock(ctx)
			kept := s.copies(aRenewal)
			time.Sleep(15 * time.Second)
			s.unlock(h)
			return kept
		},
	}
	for name, play := range cases {
		for when, wait := range map[string]time.Duration{"soon": 0, "past its end": pastItsEnd} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := inBubble(t)
					s.unlock(s.lock(ctx)) // the client learns the server's clock
					kept := play(s)
					time.Sleep(wait)
					h := s.lock(ctx) // the same client, the same lock, another grant
					time.Sleep(5 * time.Second)
					ttl := s.ttl()
					for _, found := range s.letGo(kept) {
						require.LessOrEqual(t, found, int64(0), "the copy did something")
					}
					s.holds(h, 1)
					require.Equal(t, ttl, s.ttl(), "neither longer nor shorter")
					require.True(t, h.Trusted())
					s.unlock(h)
					s.nothingLeft()
				})
			})
		}
	}
}

func (s *scene) ttl() time.Duration {
	s.t.Helper()
	ttl, err := s.direct.PTTL(context.Background(), s.name).Result()
	require.NoError(s.t, err)
	return ttl
}

// A late copy sets an old number of holds in Redis, and changes nothing else. The client counts its
// holds, and its next command corrects the number.
func TestLateNumbersDoNotFreeTheLock(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		first := s.lock(ctx)
		second := s.lock(first.Context())
		kept := s.copies(anInnerOne)
		s.unlock(second) // one left
		third := s.lock(first.Context())
		fourth := s.lock(first.Context())
		s.letGo(kept)
		s.holds(first, 1) // the number of the copy, although there are three holds
		s.unlock(third)
		s.holds(first, 2)
		s.unlock(fourth)
		s.holds(first, 1)
		s.unlock(first)
		s.free()
		s.nothingLeft()
	})
}

// An inner release is held back, and the client sends the number again. Past its end, the first command
// sets no number any more. Nobody would correct it before the next command of the lock.
func TestALateNumberOfHoldsIsVoid(t *testing.T) {
	ctx := context.Background()
	for name, unlock := range map[string]func(s *scene, outer *lock.Hold){
		"unlock": func(s *scene, outer *lock.Hold) { s.unlock(s.lock(outer.Context())) },
		"do": func(s *scene, outer *lock.Hold) {
			require.NoError(s.t, s.mu.Do(outer.Context(), func(context.Context) error { return nil }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				outer := s.lock(ctx)
				s.unlock(s.lock(outer.Context())) // the server learns the script
				kept := s.proxy.Inject(redistest.Rule{Match: anInnerOne, Times: 1, Action: redistest.HoldBack()})
				unlock(s, outer)
				require.Equal(t, 1, kept.Bites())
				time.Sleep(pastItsEnd)
				s.holds(outer, 1)
				inner := s.lock(outer.Context())
				require.Equal(t, []int64{-2}, s.letGo(kept))
				s.holds(inner, 2)
				s.unlock(inner)
				s.unlock(outer)
				s.nothingLeft()
			})
		})
	}
}

// An attempt of the background to send the number is held back, go-redis soon gives it up, and the next one is
// answered. Before its end, the first one still sets the old number. The background sends the right one after
// that end.
func TestTheBackgroundSendsTheNumberAfterItsOwnLateAttempt(t *testing.T) {
	ctx := context.Background()
	synctest.Test(t, func(t *testing.T) {
		s := inBubbleOf(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
		outer := s.lock(ctx)
		s.unlock(s.lock(outer.Context())) // the server learns the script
		refused := s.proxy.Inject(redistest.Rule{Match: anInnerOne, Times: 1, Action: redistest.Refuse("LOADING Redis is loading the dataset in memory")})
		kept := s.proxy.Inject(redistest.Rule{Match: anInnerOne, Times: 1, Action: redistest.HoldBack()})
		require.NoError(t, s.mu.Do(outer.Context(), func(context.Context) error { return nil }))
		require.Equal(t, 1, refused.Bites())
		kept.Await(1)
		s.proxy.ResetCounts()
		for s.proxy.Forwarded("EVALSHA") == 0 { // until Redis has answered the next attempt
			time.Sleep(time.Millisecond)
		}
		middle := s.lock(outer.Context())
		require.Equal(t, []int64{2}, s.letGo(kept), "it comes before its end")
		s.holds(outer, 1) // the number of the late attempt, although there are two holds
		time.Sleep(pastItsEnd)
		s.holds(middle, 2)
		s.unlock(middle)
		s.unlock(outer)
		s.nothingLeft()
	})
}

// A command was held back, and the client sent it again, so nobody waits for its grant any more.
// After its end, it grants nothing. Before its end, it grants one lease without renewal, which the
// client releases soon after that end.
func TestLateOriginalOfAnAcquire(t *testing.T) {
	ctx := context.Background()
	heldBack := func(t *testing.T, s *scene) *redistest.Fault {
		s.unlock(s.lock(ctx))
		kept := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.HoldBack()})
		h := s.lock(ctx) // sent again after the time limit of the first attempt
		require.Equal(t, 1, kept.Bites())
		s.unlock(h)
		s.free()
		return kept
	}
	t.Run("past its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := inBubble(t)
			kept := heldBack(t, s)
			time.Sleep(pastItsEnd)
			require.Equal(t, []int64{-2}, s.letGo(kept))
			s.free()
			s.nothingLeft()
		})
	})
	t.Run("while another client has the lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := inBubble(t)
			kept := heldBack(t, s)
			require.NoError(t, s.direct.HSet(ctx, s.name, "somebody:1", 1).Err())
			s.letGo(kept)
			require.Equal(t, map[string]string{"somebody:1": "1"}, s.stored())
			require.NoError(t, s.direct.Del(ctx, s.name).Err())
		})
	})
}

// The caller left while its command was in flight. The command arrives before its end, and after
// the first clean-up.
func TestLateGrantLivesNotMuchLongerThanItsCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		s.unlock(s.lock(context.Background()))
		kept := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.HoldBack()})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := s.mu.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait() // the first clean-up has found nothing
		require.Equal(t, []int64{1}, s.letGo(kept), "the ghost must be there for the test to mean anything")
		require.Len(t, s.stored(), 1)
		time.Sleep(pastItsEnd)
		synctest.Wait()
		s.free()
		s.nothingLeft()
	})
}

// A transfer arrives after everything about it was given up.
func TestLateTransferGrantsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		first := s.lock(context.Background())
		got := make(chan *lock.Hold, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			h, _ := s.mu.Lock(ctx)
			got <- h
		}()
		synctest.Wait()
		kept := s.proxy.Inject(redistest.Rule{Match: aTransfer, Times: 1, Action: redistest.HoldBack()})
		unlocked := make(chan error, 1)
		go func() { unlocked <- first.Unlock(context.Background()) }()
		synctest.Wait()
		cancel() // the waiter gives up while the lock is being handed to it
		require.NoError(t, <-unlocked, "sent again, and answered")
		require.Nil(t, <-got)
		synctest.Wait()
		s.free()
		for _, found := range s.letGo(kept) {
			require.Less(t, found, int64(0))
		}
		time.Sleep(pastItsEnd)
		s.free()
		s.nothingLeft()
	})
}
