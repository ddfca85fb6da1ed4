package redlatch_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: an error says what happened, and nothing that did not happen.

// askers are all calls that take a context and ask Redis, without their results.
func askers(c *redlatch.Client) map[string]func(ctx context.Context) error {
	m, f, s := c.Mutex("orders"), c.FairMutex("orders"), c.Semaphore("orders", 3)
	nothing := func(context.Context) error { return nil }
	zero := func(context.Context) (int, error) { return 0, nil }
	return map[string]func(ctx context.Context) error{
		"Mutex.Lock":               func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
		"Mutex.TryLock":            func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
		"Mutex.Do":                 func(ctx context.Context) error { return m.Do(ctx, nothing) },
		"Mutex.TryDo":              func(ctx context.Context) error { return m.TryDo(ctx, nothing) },
		"Call":                     func(ctx context.Context) error { _, err := redlatch.Call(ctx, m, zero); return err },
		"Mutex.Inspect":            func(ctx context.Context) error { _, err := m.Inspect(ctx); return err },
		"Mutex.ForceRelease":       func(ctx context.Context) error { _, err := m.ForceRelease(ctx, ""); return err },
		"Mutex.ForceRelease of id": func(ctx context.Context) error { _, err := m.ForceRelease(ctx, "somebody:1"); return err },
		"FairMutex.Lock":           func(ctx context.Context) error { _, err := f.Lock(ctx); return err },
		"FairMutex.TryLock":        func(ctx context.Context) error { _, err := f.TryLock(ctx); return err },
		"FairMutex.Do":             func(ctx context.Context) error { return f.Do(ctx, nothing) },
		"FairMutex.TryDo":          func(ctx context.Context) error { return f.TryDo(ctx, nothing) },
		"FairMutex.Inspect":        func(ctx context.Context) error { _, err := f.Inspect(ctx); return err },
		"FairMutex.ForceRelease":   func(ctx context.Context) error { _, err := f.ForceRelease(ctx, "somebody:1"); return err },
		"FairMutex.Queue":          func(ctx context.Context) error { _, _, err := f.Queue(ctx, 0, 10); return err },
		"FairMutex.RemoveWaiter":   func(ctx context.Context) error { _, err := f.RemoveWaiter(ctx, "somebody:1"); return err },
		"Semaphore.Acquire":        func(ctx context.Context) error { _, err := s.Acquire(ctx, 1); return err },
		"Semaphore.TryAcquire":     func(ctx context.Context) error { _, err := s.TryAcquire(ctx, 1); return err },
		"Semaphore.Do":             func(ctx context.Context) error { return s.Do(ctx, 1, nothing) },
		"Semaphore.TryDo":          func(ctx context.Context) error { return s.TryDo(ctx, 1, nothing) },
		"Semaphore.Inspect":        func(ctx context.Context) error { _, err := s.Inspect(ctx); return err },
		"Semaphore.Resize":         func(ctx context.Context) error { _, err := s.Resize(ctx, 4); return err },
		"Semaphore.ForceRelease":   func(ctx context.Context) error { _, err := s.ForceRelease(ctx, "somebody:1"); return err },
		"Semaphore.Queue":          func(ctx context.Context) error { _, _, err := s.Queue(ctx, 0, 10); return err },
		"Semaphore.RemoveWaiter":   func(ctx context.Context) error { _, err := s.RemoveWaiter(ctx, "somebody:1"); return err },
	}
}

var allKinds = []error{
	redlatch.ErrNotAcquired, redlatch.ErrNotReplicated, redlatch.ErrLost, redlatch.ErrNotHeld, redlatch.ErrIndeterminate, redlatch.ErrUnavailable,
	redlatch.ErrRefused, redlatch.ErrClosed, redlatch.ErrConfig,
}

func TestAContextThatHadEndedIsTheWholeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		expired, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		for name, op := range askers(s.locks) {
			for _, ended := range []context.Context{cancelled, expired} {
				err := op(ended)
				require.ErrorIs(t, err, ended.Err(), name)
				for _, kind := range allKinds {
					require.NotErrorIs(t, err, kind, name)
				}
			}
		}
		require.Zero(t, s.proxy.Forwarded("EVALSHA", "EVAL"), "Redis was asked")
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
				s := inBubble(t, redlatch.WithLease(10*time.Second))
				t.Cleanup(func() { time.Sleep(15 * time.Second) }) // for go-redis, which dials in the background
				releases := map[string]func(context.Context) error{}
				for kind, k := range kinds {
					if kind == "fair" {
						continue // the same lock
					}
					_, release, err := k.take(s.locks, context.Background())
					require.NoError(t, err)
					releases[kind+" release"] = release
				}
				hit(s.proxy)
				all := askers(s.locks)
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
		s := inBubble(t)
		ctx := context.Background()
		_, release, err := kinds["semaphore"].take(s.locks, ctx)
		require.NoError(t, err)
		h := s.lock(ctx)
		require.NoError(t, s.client.Close())
		started := time.Now()
		all := askers(s.locks)
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
		s := inBubble(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		h := s.lock(context.Background())
		failed := make(chan error, 1)
		go func() { _, err := s.mu.Lock(ctx); failed <- err }()
		synctest.Wait()
		cancel(errors.New("the request was withdrawn"))
		err := <-failed
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "context canceled; the request was withdrawn")
		require.False(t, strings.Contains(err.Error(), "\n"), err)
		s.unlock(h)

		err = s.mu.Do(context.Background(), func(ctx context.Context) error {
			require.NoError(t, s.direct.Del(ctx, s.name).Err())
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
		s := inBubble(t)
		ctx := context.Background()
		_, release, err := kinds["fair"].take(s.locks, ctx)
		require.NoError(t, err)
		_, err = s.locks.FairMutex("orders").TryLock(ctx)
		require.ErrorContains(t, err, "nobody waits")
		require.NotContains(t, err.Error(), "queue of 0")
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		waits := make(chan error, 1)
		go func() { _, err := s.locks.FairMutex("orders").Lock(bounded); waits <- err }()
		synctest.Wait()
		_, err = s.locks.FairMutex("orders").TryLock(ctx)
		require.ErrorContains(t, err, "1 waits")
		require.ErrorContains(t, <-waits, "place 1, queue of 1")
		require.NoError(t, release(ctx))
	})
}

// A re-entry that gave up behind another command of its lock has sent nothing.
func TestAReentryThatWasNotSentChangedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		hang := s.proxy.Inject(redistest.Rule{Match: aReentry, Action: redistest.Swallow()})
		reenter := func(within time.Duration) <-chan error {
			failed := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(h.Context(), within)
				defer cancel()
				_, err := s.mu.Lock(ctx)
				failed <- err
			}()
			synctest.Wait()
			return failed
		}
		sent := reenter(time.Second)
		waits := reenter(time.Second / 2)
		err := <-waits
		require.Equal(t, 1, hang.Bites(), "it was not sent")
		requireOnly(t, redlatch.ErrUnavailable, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var op *redlatch.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "lock", op.Op)
		require.Equal(t, s.name, op.Name)
		require.ErrorIs(t, <-sent, redlatch.ErrIndeterminate)
	})
}

// Text of others may have several lines: a cause from errors.Join, or an error of a hook.
func TestTextOfOthersIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		lines := errors.Join(errors.New("first line"), errors.New("second\tline\x1b[2J"))
		shown := func(name string, err error) {
			t.Helper()
			require.ErrorIs(t, err, lines, name)
			require.ErrorContains(t, err, `first line\nsecond\tline\x1b[2J`, name)
			requireShowable(t, err)
		}
		h := s.lock(context.Background())
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(lines)
		for name, op := range askers(s.locks) {
			shown("ended, "+name, op(ended))
		}
		waiting, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(lines) })
		_, err := s.mu.Lock(waiting)
		shown("a wait", err)
		shown("work that failed, and a lost lock", s.locks.Mutex("other").Do(context.Background(), func(ctx context.Context) error {
			require.NoError(t, s.direct.Del(ctx, "other").Err())
			return lines
		}))

		s.client.AddHook(&doubtful{script: "mutex/acquire", say: func() error { return lines }})
		_, err = s.locks.Mutex("another").TryLock(context.Background())
		shown("a hook", err)

		s.proxy.Down()
		closing, cancel := context.WithCancelCause(context.Background())
		cancel(lines)
		shown("Close", s.locks.Close(closing))
		require.Error(t, h.Context().Err())
	})
}

// The connection of a call dies silently. The call sends again on another one, and meanwhile another
// call reports that Redis does not answer, and not that somebody has the lock.
func TestAnUnansweredAttemptIsNoContention(t *testing.T) {
	for name, ctx := range map[string]func(t *testing.T) context.Context{
		"nothing ends the first call": func(*testing.T) context.Context { return context.Background() },
		"the first call can end":      func(t *testing.T) context.Context { return t.Context() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				s.unlock(s.lock(ctx(t)))
				s.proxy.BlackHole(redistest.CommandTraffic)
				locked := make(chan *lock.Hold)
				go func() { locked <- s.lock(ctx(t)) }()
				synctest.Wait()
				limited, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				_, err := s.mu.Lock(limited)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
				s.proxy.Heal()
				s.unlock(<-locked)
			})
		})
	}
}

// Redis hangs, and nobody has the lock. Waiters behind the one that asks do not say that somebody
// has it, even if no attempt has failed yet.
func TestWaitersBehindAnUnansweredAttemptSayUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		locks, err := redlatch.New(embedding{s.client}) // so that workers send, and attempts are long
		require.NoError(t, err)
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		s.mu = locks.Mutex(s.name)
		s.unlock(s.lock(t.Context()))
		time.Sleep(time.Second)
		s.proxy.BlackHole(redistest.CommandTraffic)
		failed := make(chan error)
		const waiters = 5
		for range waiters {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.mu.Lock(ctx)
				failed <- err
			}()
		}
		for range waiters {
			require.NotErrorIs(t, <-failed, redlatch.ErrNotAcquired)
		}
		s.proxy.Heal()
	})
}

// Without an open connection go-redis has to dial, for as long as the dialer likes. A try leaves
// such an attempt, and returns in time.
func TestATryThatHasToDialReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 4500 * time.Millisecond
		s := inBubble(t)
		rdb := s.proxy.Client(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(slow)
				client, server := net.Pipe() // on which nobody answers
				go func() { _, _ = io.Copy(io.Discard, server) }()
				return client, nil
			}
			o.ReadTimeout = slow
		})
		locks, err := redlatch.New(rdb)
		require.NoError(t, err)
		began := time.Now()
		_, err = locks.Mutex("orders").TryLock(context.Background())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = locks.Close(ctx) // nobody answers
		require.NoError(t, rdb.Close())
		time.Sleep(time.Minute) // until go-redis has given up
	})
}

// The connection of a call dies silently. The call sends by itself, and leaves that attempt early
// enough for another: the Unlock before trust ends, and the Lock soon after its context.
func TestACallThatSendsByItselfLeavesADeadConnection(t *testing.T) {
	obeysDeadlines := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	for name, ctx := range map[string]func(t *testing.T) context.Context{
		"nothing ends it": func(*testing.T) context.Context { return context.Background() },
		"it can end":      func(t *testing.T) context.Context { return t.Context() },
	} {
		t.Run("unlock, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubbleOf(t, obeysDeadlines, redlatch.WithLease(8*time.Second), redlatch.WithoutRenewal())
				s.unlock(s.lock(ctx(t)))
				h := s.lock(ctx(t))
				time.Sleep(time.Until(h.TrustedUntil()) - 2*sender.DirectFor)
				lost := s.proxy.Inject(redistest.Rule{Match: aLastOne, Times: 1, Action: redistest.Swallow()})
				require.NoError(t, h.Unlock(ctx(t)))
				require.NotZero(t, lost.Bites())
			})
		})
	}
	t.Run("lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := inBubbleOf(t, obeysDeadlines)
			s.unlock(s.lock(t.Context()))
			s.proxy.BlackHole(redistest.CommandTraffic)
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				began := time.Now()
				_, err := s.mu.Lock(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(began), time.Millisecond+sender.DirectFor)
			}
			s.proxy.Heal()
			s.unlock(s.lock(t.Context()))
		})
	})
}

// A command that its caller gave up arrives late. It must do nothing, because a later attempt of the
// same call may have got the lock and released it.
func TestACommandThatItsCallerGaveUpDoesNothingLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubbleOf(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		s.unlock(s.lock(t.Context()))
		synctest.Wait() // nothing is in flight, so the next command is sent by its caller
		late := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.HoldBack()})
		began := time.Now()
		s.unlock(s.lock(t.Context()))
		require.Equal(t, 1, late.Bites())
		require.Less(t, time.Since(began), 2*sender.DirectFor)
		late.Release()
		synctest.Wait()
		s.free()
		s.nothingLeft()
	})
}

// The context of an Unlock ends while the Unlock waits for a renewal in flight. The Unlock returns
// then. Its error has a kind, and the background releases the lock.
func TestAnUnlockThatWaitsForARenewalObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t, redlatch.WithLease(6*time.Second))
		h := s.lock(t.Context())
		slow := s.proxy.Inject(redistest.Rule{Match: aRenewal, Times: 1, Action: redistest.DelayReply(400 * time.Millisecond)})
		slow.Await(1)
		const limit = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		err := h.Unlock(ctx)
		require.Equal(t, limit, time.Since(began))
		requireOnly(t, redlatch.ErrUnavailable, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		s.free()
		s.nothingLeft()
	})
}
