package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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

// The guess of the server's clock lags by as much as the last reply took. It may fall back while
// attempts are open. Then the end of the later attempt is not the latest end. Neither is an end
// counted from the guess of that moment. A copy of an earlier attempt can be granted after both.
// verify/models/acquire.pml found this.
func TestCopiesInFlightLastAsLongAsTheLatestEndThatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		const serverTime, lag = lua.Time(1_000_000_000_000), 300 * time.Millisecond
		require.NoError(t, s.checkReply("x", lua.Granted, serverTime))

		ctx, cancel := context.WithCancel(t.Context())
		var latest lua.Time
		attempts := 0
		answer, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second},
			func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (int, error) {
				latest = max(latest, voidAfter)
				if attempts++; attempts == 1 {
					// The reply to another command took long, and brings an old time.
					require.NoError(t, s.checkReply("x", lua.Granted, s.Now("x").Add(-lag)))
					return 0, sender.ErrUnanswered
				}
				require.Less(t, voidAfter, latest, "the guess has fallen back")
				cancel()
				<-ctx.Done()
				return 0, ctx.Err()
			})
		require.Error(t, err)
		require.Equal(t, 2, attempts)
		require.GreaterOrEqual(t, s.Now("x").Add(answer.InFlight.remaining()), latest)
	})
}

// Two unanswered attempts may have been granted. The second release comes when both can have no
// effect any more, because they were answered or are void. One of them is not enough.
func TestSecondReleaseComesAfterTheLastAttempt(t *testing.T) {
	const valid = 2 * time.Second
	play := func(t *testing.T, test func(one, other *sender.AbandonedCommand, released *atomic.Int64)) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{})
			require.NoError(t, s.checkReply("x", lua.Granted, 1_000_000_000_000))
			one, other := new(sender.AbandonedCommand), new(sender.AbandonedCommand)
			left := newInFlight(&s.servers.fallback.clock, s.Now("x").Add(valid), one).Merge(newInFlight(&s.servers.fallback.clock, s.Now("x").Add(valid), other))
			var released atomic.Int64
			s.CleanUp(left, time.Minute, func(context.Context) error { released.Add(1); return nil })
			synctest.Wait()
			require.EqualValues(t, 1, released.Load())
			test(one, other, &released)
			synctest.Wait()
			require.EqualValues(t, 2, released.Load())
		})
	}
	t.Run("both are answered", func(t *testing.T) {
		play(t, func(one, other *sender.AbandonedCommand, released *atomic.Int64) {
			other.End(redis.ErrPoolTimeout)
			synctest.Wait()
			require.EqualValues(t, 1, released.Load())
			one.End(nil)
		})
	})
	t.Run("one is answered and one breaks off", func(t *testing.T) {
		play(t, func(one, other *sender.AbandonedCommand, released *atomic.Int64) {
			one.End(nil)
			other.End(io.EOF)
			time.Sleep(valid - time.Millisecond)
			require.EqualValues(t, 1, released.Load())
			time.Sleep(100 * time.Millisecond)
		})
	})
}

// lostReplies is a server whose replies are lost.
type lostReplies struct{}

func (lostReplies) Process(_ context.Context, cmd redis.Cmder) error {
	_ = fmt.Sprint(cmd.Args()...) // it is written
	cmd.SetErr(io.EOF)
	return io.EOF
}

// A grant of an id may have ended, and the id must not be granted a second time. So no attempt is
// sent, and none runs, later than the window after the first attempt that may have run.
func TestNothingRunsPastTheWindow(t *testing.T) {
	const window, limit = 3 * time.Second, 2 * time.Second
	type attempt struct{ sent, void time.Duration } // since the first that may have run
	play := func(t *testing.T, refused int, answered time.Duration) (attempts []attempt, err error) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{})
			const serverTime = lua.Time(1_000_000_000_000)
			require.NoError(t, s.checkReply("x", lua.Granted, serverTime))
			start, n := time.Now(), 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err = Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: limit, Window: window},
				func(ctx context.Context, rdb lua.Redis, voidAfter lua.Time) (int, error) {
					if n++; n <= refused {
						return 0, redis.ErrPoolTimeout // not sent
					}
					if n == refused+1 {
						start = time.Now()
					}
					lag := start.Sub(s.servers.fallback.clock.start)
					attempts = append(attempts, attempt{
						time.Since(start), time.Duration(voidAfter-serverTime)*time.Microsecond - lag,
					})
					if answered > 0 && time.Since(start) >= answered {
						return 1, nil
					}
					_, err := lua.Inspect(ctx, lostReplies{}, "x", "y")
					return 0, err
				})
		})
		return attempts, err
	}
	for name, refused := range map[string]int{"at once": 0, "after an outage": 30} {
		t.Run(name, func(t *testing.T) {
			attempts, err := play(t, refused, 0)
			require.ErrorIs(t, err, ErrWindowExpired)
			require.ErrorIs(t, err, lockerr.ErrIndeterminate)
			require.Greater(t, len(attempts), 3)
			for _, a := range attempts {
				require.Less(t, a.sent, window)
				require.LessOrEqual(t, a.void, window)
				require.LessOrEqual(t, a.void, a.sent+limit)
			}
			require.Greater(t, attempts[len(attempts)-1].sent, window*3/4, "it is sent again for as long as it may be")
		})
	}
	t.Run("answered in time", func(t *testing.T) {
		_, err := play(t, 0, window/2)
		require.NoError(t, err)
	})
}

// slowServer runs each command, and answers it after the time that the function returns.
type slowServer func() (takes time.Duration)

func (f slowServer) Process(ctx context.Context, cmd redis.Cmder) error {
	_ = fmt.Sprint(cmd.Args()...) // it is written
	select {
	case <-time.After(f()):
		return nil
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}

// isAnswered sends a command. Any answer is a success.
func isAnswered(ctx context.Context, rdb lua.Redis, _ lua.Time) (int, error) {
	_, err := lua.Inspect(ctx, rdb, "x", "y")
	if !errors.Is(err, sender.ErrUnanswered) {
		err = nil
	}
	return 1, err
}

// An id has one window for all its attempts. Two lost replies leave time for a third attempt, even
// if one attempt may take longer than the window. A server that takes almost half of the window for
// each answer is fast enough.
func TestAttemptsShareTheWindow(t *testing.T) {
	const window = time.Second
	for name, takes := range map[string][]time.Duration{
		"two replies are lost": {time.Hour, time.Hour, 0},
		"the server is slow":   {window * 2 / 5, window * 2 / 5, window * 2 / 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var attempts atomic.Int64
				s := fresh(t, Config{Redis: slowServer(func() time.Duration { return takes[min(int(attempts.Add(1)), len(takes))-1] })})
				_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: 2 * window, Window: window}, isAnswered)
				require.NoError(t, err)
				require.EqualValues(t, len(takes), attempts.Load())
			})
		})
	}
}

// Answers take longer than any attempt under the first id may take. Attempts under later ids get
// longer, up to the limit of the call, until one is answered. Then they get as long as answers
// take.
func TestAttemptsUnderLaterIDsGetLonger(t *testing.T) {
	const window, takes, limit = 100 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64
		s := fresh(t, Config{Redis: slowServer(func() time.Duration { return time.Duration(now.Load()) })})
		var pace AdaptiveTimeout
		ask := func(takes time.Duration) error {
			now.Store(int64(takes))
			_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: limit, Window: window, Adaptive: &pace}, isAnswered)
			return err
		}
		expired := 0
		for ask(takes) != nil {
			expired++
			require.Less(t, expired, 5)
		}
		require.Positive(t, expired)
		require.NoError(t, ask(takes), "the next one knows")
		for range 10 {
			began := time.Now()
			require.ErrorIs(t, ask(time.Hour), ErrWindowExpired)
			require.Less(t, time.Since(began), limit+window)
		}
	})
}

// After a request that may have taken effect, a fresh one that was never sent does not say that
// nothing happened.
func TestAnUnsureCallSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		for unsure, kind := range map[bool]error{false: lockerr.ErrUnavailable, true: lockerr.ErrIndeterminate} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, MaybeApplied: unsure},
				func(context.Context, lua.Redis, lua.Time) (int, error) { return 0, redis.ErrPoolTimeout })
			require.ErrorIs(t, err, kind)
		}
	})
}

// An attempt goes unanswered, and the context ends during the next one. Redis may answer another
// command meanwhile, for instance the release. That does not make the failure a refusal.
func TestAFailureBeforeTheEndIsNoRefusal(t *testing.T) {
	refusal := &lockerr.NotAcquiredError{Name: "x", Holder: "somebody:1"}
	for name, c := range map[string]struct {
		failures int
		unsure   bool
	}{
		"only the last attempt was cut short":   {},
		"the one before failed":                 {failures: 1},
		"an earlier call may have been granted": {unsure: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{})
				ctx, cancel := context.WithCancel(t.Context())
				attempts := 0
				call := Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, MaybeApplied: c.unsure}
				_, err := Do(ctx, s, call, func(ctx context.Context, rdb lua.Redis, _ lua.Time) (int, error) {
					if attempts++; attempts <= c.failures {
						return 0, io.EOF
					}
					cancel()
					return 0, ctx.Err()
				})
				err = s.WaitError(ctx, WaitEnd{Operation: call, Err: err, Blocked: true, NotAcquired: refusal})
				switch {
				case c.unsure:
					require.ErrorIs(t, err, lockerr.ErrIndeterminate)
				case c.failures > 0:
					require.NotErrorIs(t, err, lockerr.ErrNotAcquired)
					require.ErrorIs(t, err, io.EOF)
				default:
					require.ErrorIs(t, err, lockerr.ErrNotAcquired)
				}
			})
		})
	}
}

// A command that was left behind ends before Close does, if go-redis ends it within a moment.
func TestFinishCloseWaitsForAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		s := fresh(t, Config{Redis: processFunc(func(context.Context, redis.Cmder) error {
			time.Sleep(time.Second + closeGrace/2)
			ended.Store(true)
			return io.EOF
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Minute}, isAnswered)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, ended.Load())
		require.Equal(t, closeGrace/2, finish(t, s))
		require.True(t, ended.Load())
	})
}

// fresh makes a session, and ends its goroutines with the test.
func fresh(t *testing.T, cfg Config) *Session {
	s := New(cfg)
	t.Cleanup(s.servers.close)
	return s
}

type processFunc func(ctx context.Context, cmd redis.Cmder) error

func (f processFunc) Process(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd) }

// If a dial runs out of its own time, or of that of the attempt, the caller's context goes on.
func TestTimeOfAnAttemptIsNoDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t, Config{Redis: processFunc(func(ctx context.Context, _ redis.Cmder) error {
			dialling, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			<-dialling.Done()
			return fmt.Errorf("dial: %w", dialling.Err())
		})})
		ctx, cancel := WithDeadlineReason(t.Context(), time.Now().Add(5*time.Second), "gave up after 5s")
		defer cancel()
		_, err := Do(ctx, s, Operation{Op: "inspect", Name: "x", AttemptTimeout: time.Second},
			func(ctx context.Context, rdb lua.Redis, _ lua.Time) (lua.InspectReply, error) {
				return lua.Inspect(ctx, rdb, "x", "y")
			})
		require.ErrorContains(t, err, "dial: context deadline exceeded")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Answers take longer than the limit of an attempt. The late answer to the first attempt says how
// long, and later attempts wait that long.
func TestALinkSlowerThanOneAttemptIsLearned(t *testing.T) {
	const limit, takes = 2 * time.Second, 2100 * time.Millisecond
	for name, window := range map[string]time.Duration{"a request": 27 * time.Second, "a release": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fresh(t, Config{Redis: processFunc(func(context.Context, redis.Cmder) error {
					time.Sleep(takes)
					return nil
				})})
				ctx, cancel := context.WithTimeout(t.Context(), window+10*limit)
				defer cancel()
				ask := func() time.Duration {
					began := time.Now()
					_, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: limit, Window: window}, isAnswered)
					require.NoError(t, err)
					return time.Since(began)
				}
				require.Less(t, ask(), 4*limit)
				require.Equal(t, takes, ask(), "the next one knows")
			})
		})
	}
}

// A server that stood still for long, but only once, does not make later attempts longer.
func TestOneSlowAnswerIsForgottenWithTheNextPromptOne(t *testing.T) {
	var l link
	require.Zero(t, l.minTimeout())
	l.onLateAnswer(nil, 10*time.Second)
	require.Equal(t, 20*time.Second, l.minTimeout())
	l.onPromptAnswer(30 * time.Millisecond)
	require.Equal(t, 60*time.Millisecond, l.minTimeout())
	l.onPromptAnswer(time.Second)
	require.Equal(t, 60*time.Millisecond, l.minTimeout(), "a prompt answer never makes it longer")
}

// A server lacks a script, and says so after the attempt was left behind. The next attempt sends
// the text.
func TestALateNoScriptHasTheTextSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		var mu sync.Mutex
		s := fresh(t, Config{Redis: processFunc(func(_ context.Context, cmd redis.Cmder) error {
			name := cmd.Args()[0].(string)
			mu.Lock()
			sent = append(sent, name)
			mu.Unlock()
			time.Sleep(1500 * time.Millisecond)
			if name == "evalsha" {
				cmd.SetErr(noScript{})
				return noScript{}
			}
			return nil
		})})
		_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second, Window: 10 * time.Second}, isAnswered)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Contains(t, sent, "eval")
		require.LessOrEqual(t, len(sent), 4)
		before := len(sent)
		_, err = Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: 10 * time.Second}, isAnswered)
		require.NoError(t, err)
		require.Equal(t, []string{"evalsha", "eval"}, sent[before:], "the text goes along until it was answered once")
	})
}

// No attempt is as long as an answer takes, so only the answers that come too late show that the
// server lacks the script.
func TestOverAVerySlowLinkTheTextIsSentToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempt, roundTrip = time.Second, 5 * time.Second
		var texts atomic.Int32
		s := fresh(t, Config{Redis: processFunc(func(_ context.Context, cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.String(), "eval ") { // which counts as a write
				texts.Add(1)
			}
			time.Sleep(roundTrip)
			cmd.SetErr(noScript{})
			return noScript{}
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Do(ctx, s, Operation{Op: "lock", Name: "x", AttemptTimeout: attempt}, isAnswered)
		require.ErrorIs(t, err, lockerr.ErrIndeterminate)
		require.NotZero(t, texts.Load())
		time.Sleep(time.Minute)
	})
}

type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScript) RedisError()   {}

// A request over a link that is known to be slow stays valid for as long as its attempt waits,
// because the way to the server may take longer than the limit.
func TestARequestIsValidForAsLongAsItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, known = time.Second, 8 * time.Second
		s := fresh(t, Config{Redis: processFunc(func(context.Context, redis.Cmder) error { return nil })})
		require.NoError(t, s.checkReply("x", lua.Granted, 1_000_000_000_000))
		s.serverFor("x").link.onLateAnswer(nil, known/2)
		_, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: limit, Window: time.Minute},
			func(_ context.Context, _ lua.Redis, voidAfter lua.Time) (int, error) {
				require.Equal(t, s.Now("x").Add(known), voidAfter)
				return 1, nil
			})
		require.NoError(t, err)
	})
}

// A closed go-redis client sends nothing, so no command can take effect later.
func TestAClosedClientLeavesNothingInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t, Config{Redis: processFunc(func(context.Context, redis.Cmder) error { return redis.ErrClosed })})
		answer, err := Do(t.Context(), s, Operation{Op: "lock", Name: "x", AttemptTimeout: time.Second}, isSent)
		require.ErrorIs(t, err, lockerr.ErrClosed)
		require.False(t, answer.InFlight.Any())
	})
}

// A command that was left before any worker took it has no effect any more. Nobody waits until it
// would be void.
func TestWhatIsNotSentIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t, Config{})
		left := new(sender.AbandonedCommand)
		inFlight := newInFlight(&s.servers.fallback.clock, s.Now("x").Add(time.Minute), left)
		require.Len(t, inFlight.pending(), 1)
		left.End(sender.ErrNotSent)
		require.Empty(t, inFlight.pending())
		time.Sleep(2 * time.Minute)
	})
}

// isSent sends a command, and returns its error.
func isSent(ctx context.Context, rdb lua.Redis, _ lua.Time) (int, error) {
	_, err := lua.Inspect(ctx, rdb, "x", "y")
	return 1, err
}

// A release whose context had ended was not sent, and its error must have a kind. A request of a
// Lock says only that its context had ended.
func TestAReleaseThatIsNotSentSaysUnavailable(t *testing.T) {
	s := New(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for kind, stop := range map[error]bool{lockerr.ErrUnavailable: false, error(nil): true} {
		_, err := Do(ctx, s, Operation{Op: "unlock", Name: "x", AttemptTimeout: time.Second, StopOnClose: stop},
			func(context.Context, lua.Redis, lua.Time) (int, error) { panic("sent") })
		var failed *lockerr.OpError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, kind, failed.Kind)
		require.ErrorIs(t, err, context.Canceled)
	}
}
