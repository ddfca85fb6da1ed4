package lock_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
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

// The goal of this file: a wait timeout ends the wait, says why, and ends nothing else.

func TestAWaitTimeoutEndsTheWait(t *testing.T) {
	never := func(context.Context) error { return errors.New("the work ran") }
	for name, c := range map[string]struct {
		kind   error
		result event.Result
		play   func(t *testing.T, ctx context.Context, s *stage.Observed, kind string) error
	}{
		"another client has it": {redlatch.ErrNotAcquired, event.Busy, func(t *testing.T, ctx context.Context, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			return stage.DoCalls[kind](s.Locks, ctx, never)
		}},
		"this client has it": {redlatch.ErrNotAcquired, event.Busy, func(t *testing.T, ctx context.Context, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			return stage.DoCalls[kind](s.Locks, ctx, never)
		}},
		"redis is down": {redlatch.ErrUnavailable, event.Unavailable, func(t *testing.T, ctx context.Context, s *stage.Observed, kind string) error {
			s.Proxy.Down()
			defer s.Proxy.Up()
			return stage.DoCalls[kind](s.Locks, ctx, never)
		}},
		"redis is silent": {redlatch.ErrIndeterminate, event.Unavailable, func(t *testing.T, ctx context.Context, s *stage.Observed, kind string) error {
			s.Proxy.BlackHole(redistest.CommandTraffic)
			defer s.Proxy.Heal()
			return stage.DoCalls[kind](s.Locks, ctx, never)
		}},
	} {
		for _, kind := range stage.Primitives {
			t.Run(name+", "+kind, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // for a library without the timeout
					defer cancel()
					began := time.Now()
					err := c.play(t, ctx, s, kind)
					require.Equal(t, waitTimeout, time.Since(began))
					require.ErrorIs(t, err, c.kind)
					require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller set no deadline")
					require.NotErrorIs(t, err, context.Canceled)
					require.ErrorContains(t, err, "gave up after 2s (WithWaitTimeout)")
					waits := s.Of(event.WaitEnded)
					e := waits[len(waits)-1]
					require.Equal(t, c.result, e.Result)
					require.Equal(t, err, e.Err)
				}, redlatch.WithWaitTimeout(waitTimeout))
			})
		}
	}
}

// The error has the facts of the holder, as after a deadline.
func TestAWaitTimeoutNamesTheHolder(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h, err := s.Other.Mutex("orders").Lock(t.Context())
		require.NoError(t, err)
		for kind, lock := range map[string]redlatch.Locker{"mutex": s.Locks.Mutex("orders"), "fair": s.Locks.FairMutex("orders")} {
			_, err = lock.Lock(t.Context())
			var facts *lockerr.NotAcquiredError
			require.ErrorAs(t, err, &facts, kind)
			require.Equal(t, h.ID(), facts.Holder, kind)
			require.Positive(t, facts.Remaining, kind)
		}
		require.NoError(t, h.Unlock(t.Context()))
	}, redlatch.WithWaitTimeout(waitTimeout))
}

func TestAWaitTimeoutBoundsTheWaitOnly(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithWaitTimeout(waitTimeout))
				ctx := context.WithValue(t.Context(), stage.RecorderKey{}, "kept")
				h, release, err := stage.Kinds[kind].Take(s.Locks, ctx)
				require.NoError(t, err)
				time.Sleep(time.Hour)
				require.NoError(t, h.Context().Err())
				require.Equal(t, "kept", h.Context().Value(stage.RecorderKey{}))
				_, has := h.Context().Deadline()
				require.False(t, has)
				require.NoError(t, release(t.Context()))

				require.NoError(t, stage.DoCalls[kind](s.Locks, ctx, func(ctx context.Context) error {
					time.Sleep(time.Hour)
					_, has := ctx.Deadline()
					require.False(t, has)
					return ctx.Err()
				}))
			})
		})
	}
}

func TestAWaitTimeoutIsNotForTheLockThatComesInTime(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithWaitTimeout(waitTimeout))
				_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				time.AfterFunc(waitTimeout-time.Millisecond, func() { _ = release(t.Context()) })
				require.NoError(t, stage.DoCalls[kind](s.Locks, t.Context(), func(context.Context) error { return nil }))
			})
		})
	}
}

func TestTheContextMayEndBeforeTheWaitTimeout(t *testing.T) {
	for _, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t, redlatch.WithWaitTimeout(waitTimeout))
				_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				defer func() { require.NoError(t, release(t.Context())) }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.NotContains(t, err.Error(), "WithWaitTimeout")
			})
		})
	}
}

// A try does not wait for the lock. It waits for Redis, for five seconds or the wait timeout.
func TestATryWaitsForRedisNoLongerThanTheWaitTimeout(t *testing.T) {
	for timeout, end := range map[time.Duration]string{
		0: "gave up after 5s", waitTimeout: "gave up after 2s (WithWaitTimeout)", time.Hour: "gave up after 5s",
	} {
		for primitive, try := range stage.TryCalls {
			t.Run(stage.Primitives[primitive]+", "+timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t, redlatch.WithWaitTimeout(timeout))
					s.Proxy.Down()
					err := try(s.Locks, t.Context())
					require.ErrorContains(t, err, end)
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
				})
			})
		}
	}
}

// A program that does not pass on the context of its hold waits for itself. With a wait timeout,
// only the error can say so.
func TestTheErrorNamesTheLineOfThisProgramThatHasTheLock(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h, err := s.Locks.Mutex("orders").Lock(t.Context())
		site := stage.Here(-1)
		require.NoError(t, err)
		for _, lock := range []redlatch.Locker{s.Locks.Mutex("orders"), s.Locks.FairMutex("orders")} {
			for _, acquire := range []func(context.Context) (*redlatch.Hold, error){lock.Lock, lock.TryLock} {
				_, err = acquire(t.Context())
				var facts *lockerr.NotAcquiredError
				require.ErrorAs(t, err, &facts)
				require.Equal(t, site, filepath.Base(facts.AcquiredAt))
				require.Len(t, strings.Split(facts.AcquiredAt, "/"), 2, "the last directory, which a client may see")
				require.ErrorContains(t, err, ", acquired by this client at "+facts.AcquiredAt+" (if that is your own call chain, pass the context of that hold)")
			}
		}
		for _, lock := range []redlatch.Locker{s.Other.Mutex("orders"), s.Other.FairMutex("orders")} {
			_, err = lock.TryLock(t.Context())
			var facts *lockerr.NotAcquiredError
			require.ErrorAs(t, err, &facts)
			require.Empty(t, facts.AcquiredAt, "this client does not have it")
		}
		require.NoError(t, h.Unlock(t.Context()))
	}, redlatch.WithWaitTimeout(waitTimeout))
}

// A goroutine that begins with Do has no line in the program. The error then says nothing of it.
func TestTheErrorNamesNoLineOfTheRuntime(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		mu := s.Locks.Mutex("orders")
		begun, end := make(chan struct{}), make(chan struct{})
		go mu.Do(t.Context(), func(context.Context) error { close(begun); <-end; return nil }) //nolint:errcheck // the hold counts
		<-begun
		_, err := mu.TryLock(t.Context())
		var facts *lockerr.NotAcquiredError
		require.ErrorAs(t, err, &facts)
		require.NotEmpty(t, facts.Holder)
		require.Empty(t, facts.AcquiredAt)
		close(end)
		synctest.Wait()
	})
}
