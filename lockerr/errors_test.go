package lockerr_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/internal/test/wrapped"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: an error says what happened, and nothing that did not happen.

var allKinds = []error{
	redlatch.ErrNotAcquired, redlatch.ErrNotReplicated, redlatch.ErrLost, redlatch.ErrNotHeld, redlatch.ErrIndeterminate, redlatch.ErrUnavailable,
	redlatch.ErrRefused, redlatch.ErrClosed, redlatch.ErrConfig,
}

func TestAContextThatHadEndedIsTheWholeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		expired, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		for name, op := range stage.Calls(s.Locks) {
			for _, ended := range []context.Context{cancelled, expired} {
				err := op(ended)
				require.ErrorIs(t, err, ended.Err(), name)
				for _, kind := range allKinds {
					require.NotErrorIs(t, err, kind, name)
				}
			}
		}
		require.Zero(t, s.Proxy.Forwarded("EVALSHA", "EVAL"), "Redis was asked")
	})
}

// The caller has set no limit, so it is not the caller's context that ends.
func TestOwnLimitsAreNoEndOfAContext(t *testing.T) {
	faults := map[string]func(p *redistest.Proxy){
		"down":   (*redistest.Proxy).Down,
		"silent": func(p *redistest.Proxy) { p.BlackHole(redistest.AllTraffic) },
	}
	waits := []string{"Mutex.Lock", "Mutex.Do", "Call", "FairMutex.Lock", "FairMutex.Do", "Semaphore.Acquire", "Semaphore.Do"}
	for fault, hit := range faults {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithLease(10*time.Second))
				t.Cleanup(func() { time.Sleep(15 * time.Second) }) // for go-redis, which dials in the background
				releases := map[string]func(context.Context) error{}
				for kind, k := range stage.Kinds {
					if kind == "fair" {
						continue // the same lock
					}
					_, release, err := k.Take(s.Locks, context.Background())
					require.NoError(t, err)
					releases[kind+" release"] = release
				}
				hit(s.Proxy)
				all := stage.Calls(s.Locks)
				for _, name := range waits {
					delete(all, name)
				}
				for name, release := range releases {
					all[name] = release
				}
				failures := make(map[string]chan error)
				for name, op := range all {
					failed := make(chan error, 1)
					failures[name] = failed
					go func() { failed <- op(context.Background()) }()
				}
				for name, failed := range failures {
					err := <-failed
					require.Error(t, err, name)
					require.NotErrorIs(t, err, context.DeadlineExceeded, name)
					require.NotErrorIs(t, err, context.Canceled, name)
					require.True(t, errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrIndeterminate), "%s: %v", name, err)
					require.NotContains(t, err.Error(), "\n", name)
				}
			})
		})
	}
}

func TestAClosedGoRedisClientIsNotARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		_, release, err := stage.Kinds["semaphore"].Take(s.Locks, ctx)
		require.NoError(t, err)
		h := s.Lock(ctx)
		require.NoError(t, s.Client.Close())
		started := time.Now()
		all := stage.Calls(s.Locks)
		all["Unlock"], all["Release"] = h.Unlock, release
		for name, op := range all {
			err := op(ctx)
			require.ErrorIs(t, err, redlatch.ErrClosed, name)
			require.ErrorIs(t, err, redis.ErrClosed, name)
			require.NotErrorIs(t, err, redlatch.ErrRefused, name)
			require.NotContains(t, err.Error(), "no connection", name)
		}
		require.Equal(t, started, time.Now(), "nobody tries again")
	})
}

func TestAMissingPasswordIsNamed(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	_, err = c.Mutex("orders").Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrRefused)
	require.Contains(t, err.Error(), "NOAUTH")
}

func TestErrorsAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		h := s.Lock(context.Background())
		failed := make(chan error, 1)
		go func() { _, err := s.Mutex.Lock(ctx); failed <- err }()
		synctest.Wait()
		cancel(errors.New("the request was withdrawn"))
		err := <-failed
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "context canceled; the request was withdrawn")
		require.False(t, strings.Contains(err.Error(), "\n"), err)
		s.Unlock(h)

		err = s.Mutex.Do(context.Background(), func(ctx context.Context) error {
			require.NoError(t, s.Direct.Del(ctx, s.Name).Err())
			return errors.New("the work failed")
		})
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.NotContains(t, err.Error(), "\n")
	})
}

func TestWhatWasSetIsShown(t *testing.T) {
	for d, shown := range map[time.Duration]string{0: "renewal interval (WithRenewInterval) is 0s", -1: "renewal interval (WithRenewInterval) is -1ns"} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		_, err := redlatch.New(rdb, redlatch.WithRenewInterval(d))
		require.NoError(t, rdb.Close())
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.ErrorContains(t, err, shown)
	}
}

// A try has no place in the queue. Its error says how many waiters do.
func TestARefusedTrySaysWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		ctx := context.Background()
		_, release, err := stage.Kinds["fair"].Take(s.Locks, ctx)
		require.NoError(t, err)
		_, err = s.Locks.FairMutex("orders").TryLock(ctx)
		require.ErrorContains(t, err, "nobody waits")
		require.NotContains(t, err.Error(), "queue of 0")
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		waits := make(chan error, 1)
		go func() { _, err := s.Locks.FairMutex("orders").Lock(bounded); waits <- err }()
		synctest.Wait()
		_, err = s.Locks.FairMutex("orders").TryLock(ctx)
		require.ErrorContains(t, err, "1 waits")
		require.ErrorContains(t, <-waits, "place 1, queue of 1")
		require.NoError(t, release(ctx))
	})
}

// A re-entry that gave up behind another command of its lock has sent nothing.
func TestAReentryThatWasNotSentChangedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		hang := s.Proxy.Inject(redistest.Rule{Match: stage.AReentry, Action: redistest.Swallow()})
		reenter := func(within time.Duration) <-chan error {
			failed := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(h.Context(), within)
				defer cancel()
				_, err := s.Mutex.Lock(ctx)
				failed <- err
			}()
			synctest.Wait()
			return failed
		}
		sent := reenter(time.Second)
		waits := reenter(time.Second / 2)
		err := <-waits
		require.Equal(t, 1, hang.Bites(), "it was not sent")
		stage.RequireOnly(t, redlatch.ErrUnavailable, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var op *redlatch.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "lock", op.Op)
		require.Equal(t, s.Name, op.Name)
		require.ErrorIs(t, <-sent, redlatch.ErrIndeterminate)
	})
}

// Text of others may have several lines: a cause from errors.Join, or an error of a hook.
func TestTextOfOthersIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		lines := errors.Join(errors.New("first line"), errors.New("second\tline\x1b[2J"))
		shown := func(name string, err error) {
			t.Helper()
			require.ErrorIs(t, err, lines, name)
			require.ErrorContains(t, err, `first line\nsecond\tline\x1b[2J`, name)
			stage.RequireShowable(t, err)
		}
		h := s.Lock(context.Background())
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(lines)
		for name, op := range stage.Calls(s.Locks) {
			shown("ended, "+name, op(ended))
		}
		waiting, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(lines) })
		_, err := s.Mutex.Lock(waiting)
		shown("a wait", err)
		shown("work that failed, and a lost lock", s.Locks.Mutex("other").Do(context.Background(), func(ctx context.Context) error {
			require.NoError(t, s.Direct.Del(ctx, "other").Err())
			return lines
		}))

		s.Client.AddHook(&stage.DoubtfulHook{Script: "mutex/acquire", Say: func() error { return lines }})
		_, err = s.Locks.Mutex("another").TryLock(context.Background())
		shown("a hook", err)

		s.Proxy.Down()
		closing, cancel := context.WithCancelCause(context.Background())
		cancel(lines)
		shown("Close", s.Locks.Close(closing))
		require.Error(t, h.Context().Err())
	})
}

// The connection of a call dies silently. The call sends again on another one, and meanwhile
// another call reports that Redis does not answer, and not that somebody has the lock.
func TestAnUnansweredAttemptIsNoContention(t *testing.T) {
	for name, ctx := range map[string]func(t *testing.T) context.Context{
		"nothing ends the first call": func(*testing.T) context.Context { return context.Background() },
		"the first call can end":      func(t *testing.T) context.Context { return t.Context() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				s.Unlock(s.Lock(ctx(t)))
				s.Proxy.BlackHole(redistest.CommandTraffic)
				locked := make(chan *lock.Hold)
				go func() { locked <- s.Lock(ctx(t)) }()
				synctest.Wait()
				limited, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				_, err := s.Mutex.Lock(limited)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
				s.Proxy.Heal()
				s.Unlock(<-locked)
			})
		})
	}
}

// Redis hangs, and nobody has the lock. Waiters behind the one that asks do not say that somebody
// has it, even if no attempt has failed yet.
func TestWaitersBehindAnUnansweredAttemptSayUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		locks, err := redlatch.New(wrapped.Embedding{UniversalClient: s.Client}) // so that workers send, and attempts are long
		require.NoError(t, err)
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		s.Mutex = locks.Mutex(s.Name)
		s.Unlock(s.Lock(t.Context()))
		time.Sleep(time.Second)
		s.Proxy.BlackHole(redistest.CommandTraffic)
		failed := make(chan error)
		const waiters = 5
		for range waiters {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.Mutex.Lock(ctx)
				failed <- err
			}()
		}
		for range waiters {
			require.NotErrorIs(t, <-failed, redlatch.ErrNotAcquired)
		}
		s.Proxy.Heal()
	})
}
