package session

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// inBubble runs test with a session that knows the server's clock.
func inBubble(t *testing.T, test func(t *testing.T, s *Session)) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t, Config{})
		require.NoError(t, s.checkReply("x", lua.Granted, 1_000_000_000_000))
		test(t, s)
	})
}

// finish closes the session, and returns how long that takes.
func finish(t *testing.T, s *Session) time.Duration {
	began := time.Now()
	s.BeginClose()
	require.NoError(t, s.FinishClose(context.Background()))
	return time.Since(began)
}

// A release that fails is tried until it succeeds, until nothing can be left to release, until the
// go-redis client was closed, or until closing cannot wait any longer. Closing waits for it.
func TestAReleaseIsTriedWhileThereMayBeSomethingToRelease(t *testing.T) {
	const takes, stands = 700 * time.Millisecond, 10 * time.Second
	play := func(t *testing.T, inFlight func(s *Session) InFlight, answer func(tries int64) error, tries int64, ends time.Duration) {
		inBubble(t, func(t *testing.T, s *Session) {
			var left InFlight
			if inFlight != nil {
				left = inFlight(s)
			}
			var n atomic.Int64
			var with context.Context
			s.CleanUp(left, stands, func(ctx context.Context) error {
				with = ctx
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				return answer(n.Add(1))
			})
			if ends > 0 {
				time.Sleep(ends - time.Millisecond)
				synctest.Wait()
				require.NoError(t, with.Err())
				require.Less(t, n.Load(), tries)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Error(t, with.Err(), "nothing is left of it")
				require.Zero(t, finish(t, s))
			} else {
				require.Equal(t, -ends, finish(t, s))
			}
			time.Sleep(time.Hour)
			require.Equal(t, tries, n.Load())
		})
	}
	fails := func(int64) error { return io.EOF }
	t.Run("answered", func(t *testing.T) { play(t, nil, func(int64) error { return nil }, 1, takes) })
	t.Run("answered at the third try", func(t *testing.T) {
		play(t, nil, func(tries int64) error {
			if tries < 3 {
				return io.EOF
			}
			return nil
		}, 3, 3*takes)
	})
	t.Run("never answered", func(t *testing.T) { play(t, nil, fails, 15, 15*takes) })
	t.Run("never answered, after an attempt", func(t *testing.T) {
		play(t, func(s *Session) InFlight { return newInFlight(&s.servers.fallback.clock, s.Now("x").Add(stands), nil) }, fails, 29, 29*takes)
	})
	t.Run("the client of go-redis is closed", func(t *testing.T) {
		play(t, nil, func(int64) error { return &lockerr.OpError{Kind: lockerr.ErrClosed} }, 1, takes)
	})
	t.Run("answered while the client closes", func(t *testing.T) { play(t, nil, func(int64) error { return nil }, 1, -takes) })
	t.Run("never answered while the client closes", func(t *testing.T) { play(t, nil, fails, 3, -closeGrace) })
}

// The second release waits for an attempt that may still be granted. A client that closes waits for
// half of its moment. In any case there is one such release.
func TestTheSecondReleaseOfAClientThatCloses(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		var n atomic.Int64
		s.CleanUp(newInFlight(&s.servers.fallback.clock, s.Now("x").Add(time.Minute), nil), time.Hour, func(context.Context) error { n.Add(1); return nil })
		synctest.Wait()
		require.EqualValues(t, 1, n.Load())
		require.Equal(t, closeGrace/2, finish(t, s))
		require.EqualValues(t, 2, n.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, n.Load())
	})
}

// A few workers retry all releases that failed, each in its turn. When they have ended, later
// failures find new ones.
func TestAFewWorkersRetryReleases(t *testing.T) {
	const workers, releases, rounds = 8, 20, 3
	inBubble(t, func(t *testing.T, s *Session) {
		for range rounds {
			var busy, most, done atomic.Int64
			for range releases {
				first := true
				s.CleanUp(InFlight{}, time.Minute, func(context.Context) error {
					if first {
						first = false
						return io.EOF
					}
					most.Store(max(most.Load(), busy.Add(1)))
					time.Sleep(time.Second)
					busy.Add(-1)
					done.Add(1)
					return nil
				})
			}
			time.Sleep(time.Minute)
			require.EqualValues(t, releases, done.Load())
			require.EqualValues(t, workers, most.Load())
		}
		require.Zero(t, finish(t, s))
	})
}

// An attempt that was left behind can have no effect any more if its end says that it did not run,
// or if it was answered. Otherwise it may have one until it is void.
func TestTheEndOfAnAttemptSaysWhetherItIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		settled bool
	}{
		"answered":         {nil, true},
		"not sent":         {sender.ErrNotSent, true},
		"no connection":    {redis.ErrPoolTimeout, true},
		"loading":          {answer("LOADING Redis is loading the dataset in memory"), true},
		"refused":          {answer("NOPERM this user has no permissions"), true},
		"client closed":    {redis.ErrClosed, true},
		"broken off":       {io.EOF, false},
		"the script fails": {answer("ERR something is wrong"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Session) {
				left := new(sender.AbandonedCommand)
				inFlight := newInFlight(&s.servers.fallback.clock, s.Now("x").Add(time.Minute), left)
				require.True(t, inFlight.Any())
				require.Len(t, inFlight.pending(), 1)
				left.End(c.err)
				require.Equal(t, c.settled, len(inFlight.pending()) == 0)
				time.Sleep(2 * time.Minute)
				require.Empty(t, inFlight.pending())
			})
		})
	}
}

// answer is an error that a server sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// The guess of the server's clock counts from its last answer, whenever that came. It gives away a
// thousandth of the time since then.
func TestTheGuessOfTheClockCountsFromTheLastAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Session) {
		time.Sleep(time.Hour)
		require.NoError(t, s.checkReply("x", lua.Granted, 5_000_000))
		require.Equal(t, lua.Time(5_000_000), s.Now("x"))
		time.Sleep(time.Second)
		require.Equal(t, lua.Time(5_999_000), s.Now("x"))
		require.ErrorIs(t, s.checkReply("x", lua.Void, 7_000_000), errVoid)
		require.Equal(t, lua.Time(7_000_000), s.Now("x"))
	})
}
