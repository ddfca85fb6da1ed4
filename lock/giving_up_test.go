package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lockerr"
)

// The goal of this file: goroutines whose time is over at the same instant all say that somebody
// else had the lock. A call that asks Redis at the last moment does not blame Redis.

// waits are the ways to bound a wait by one second.
var waits = map[string]func(c *redlatch.Client, ctx context.Context, kind string) error{
	"wait timeout": func(c *redlatch.Client, ctx context.Context, kind string) error {
		return stage.DoCalls[kind](c, ctx, func(context.Context) error { return errors.New("the work ran") })
	},
	"deadline": func(c *redlatch.Client, ctx context.Context, kind string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return stage.DoCalls[kind](c, ctx, func(context.Context) error { return errors.New("the work ran") })
	},
}

func TestWaitersThatGiveUpTogetherWereAllBusy(t *testing.T) {
	for bound, wait := range waits {
		var options []redlatch.Option
		if bound == "wait timeout" {
			options = append(options, redlatch.WithWaitTimeout(time.Second))
		}
		for _, kind := range stage.Primitives {
			t.Run(kind+", "+bound, func(t *testing.T) {
				for range 40 {
					stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
						_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
						require.NoError(t, err)
						var all sync.WaitGroup
						errs := make(chan error, 5)
						for range cap(errs) {
							all.Go(func() { errs <- wait(s.Locks, context.Background(), kind) })
						}
						all.Wait()
						for range cap(errs) {
							err := <-errs
							require.ErrorIs(t, err, redlatch.ErrNotAcquired)
							require.NotErrorIs(t, err, redlatch.ErrUnavailable)
							require.NotErrorIs(t, err, redlatch.ErrIndeterminate)
						}
						ended := s.Of(event.WaitEnded)
						require.Len(t, ended, cap(errs))
						for _, e := range ended {
							require.Equal(t, event.Busy, e.Result)
						}
						require.NoError(t, release(t.Context()))
					}, options...)
				}
			})
		}
	}
}

// The same on a server, where the attempts of the last moment are cut off. Redis answers all the
// time.
func TestWaitersThatGiveUpTogetherWereAllBusyOnAServer(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	holder, locks := stage.LocksOn(t, s.Client(t)), stage.LocksOn(t, s.Client(t))
	name := redistest.Name(t)
	h := stage.MustLock(t, t.Context(), holder.Mutex(name))
	const together = 2 * time.Second // long enough for one answer, however busy the machine is
	var all sync.WaitGroup
	errs := make(chan error, 3*40)
	for range cap(errs) / 40 {
		for range 20 {
			all.Go(func() {
				_, err := locks.Mutex(name, redlatch.WithWaitTimeout(together)).Lock(context.Background())
				errs <- err
			})
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), together)
		for range 20 {
			all.Go(func() { _, err := locks.Mutex(name).Lock(ctx); errs <- err })
		}
		all.Wait()
		cancel()
	}
	for range cap(errs) {
		var busy *lockerr.NotAcquiredError
		require.ErrorAs(t, <-errs, &busy)
	}
	require.NoError(t, h.Unlock(t.Context()))
}

// staleContext has a deadline that has passed, and goes on. A program may embed contexts in such a
// way.
type staleContext struct{ context.Context }

func (staleContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Hour), true }

func TestTheWaitTimeoutDoesNotRelyOnTheDeadlineOfTheContext(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithWaitTimeout(waitTimeout))
				_, release, err := stage.Kinds[kind].Take(stage.LocksOn(t, s.Direct), t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, _, err = stage.Kinds[kind].Take(s.Locks, staleContext{ctx})
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.Equal(t, waitTimeout, time.Since(began))
				require.NoError(t, release(t.Context()))
			})
		})
	}
}

// Its own lock is held, Redis is silent, and the re-entry waits behind a command that hangs.
func TestAReentryWhoseTimeIsOverBlamesRedis(t *testing.T) {
	for _, kind := range []string{"mutex", "fair"} {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				h, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				s.Forget()
				s.Proxy.BlackHole(redistest.CommandTraffic)
				errs := make(chan error, 3)
				for range cap(errs) {
					go func() { _, _, err := stage.Kinds[kind].Take(s.Locks, h.Context()); errs <- err }()
				}
				for range cap(errs) {
					err := <-errs
					require.True(t, errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrIndeterminate), "%v", err)
				}
				for _, e := range s.Of(event.WaitEnded) {
					require.Equal(t, event.Unavailable, e.Result)
				}
				s.Proxy.Heal()
			}, redlatch.WithWaitTimeout(time.Second))
		})
	}
}

// A waiter asks while somebody has the lock. Before the answer comes, the lock becomes free and
// another call begins. Redis never refused that call, so its error names no holder.
func TestAnOldRefusalIsNotThatOfALaterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		require.NoError(t, s.Locks.Mutex(s.Name).Do(t.Context(), func(context.Context) error { return nil })) // it learns the server's clock
		held, err := stage.LocksOn(t, s.Direct).Mutex(s.Name).Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.BlackHole(redistest.SubscriberTraffic) // else the waiter asks again as soon as it has the answer
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/acquire"), Times: 1, Action: redistest.DelayReply(50 * time.Millisecond)})
		waiting, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { _, err := s.Locks.Mutex(s.Name).Lock(waiting); ended <- err }()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		time.Sleep(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = s.Locks.Mutex(s.Name).Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var refused *redlatch.NotAcquiredError
		require.False(t, errors.As(err, &refused) && refused.Holder != "",
			"nobody has had the lock since the call began: %v", err)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
