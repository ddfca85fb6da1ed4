package sender

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// sending is a sender that tells apart who sends.
type sending struct {
	*Sender
	srv, direct *server // what workers send, and what callers send by themselves
}

func startDirect(t *testing.T) *sending {
	s := &sending{srv: &server{}, direct: &server{}}
	s.Sender = start(t, s.srv, true)
	s.cfg.Direct = true
	s.cfg.Redis = processFunc(func(ctx context.Context, cmd redis.Cmder) error {
		if s.sentDirect(cmd) {
			return s.direct.Process(ctx, cmd)
		}
		return s.srv.Process(ctx, cmd)
	})
	return s
}

func (s *sending) sentDirect(cmd redis.Cmder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.Sender.direct.command
	return c != nil && c.cmd == cmd
}

func (s *sending) idleWorkers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.idle)
}

// If the last command was answered soon, a caller sends by itself, and needs no worker.
func TestACallerSendsByItselfOnAFastLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.srv.takes = func() time.Duration { return fastLink }
		require.NoError(t, s.send(t.Context(), "first", time.Second))
		require.NoError(t, s.send(t.Context(), "slow", time.Second))
		require.Empty(t, s.direct.arrived(), "the link is not known to be fast")

		s.srv.takes = func() time.Duration { return fastLink - 1 }
		require.NoError(t, s.send(t.Context(), "fast", time.Second))
		time.Sleep(idleFor)
		synctest.Wait()
		require.Zero(t, s.idleWorkers())
		require.NoError(t, s.send(t.Context(), "direct", time.Second))
		require.Equal(t, [][]string{{"direct"}}, s.direct.arrived())
		require.Zero(t, s.idleWorkers())

		s.direct.takes = func() time.Duration { return fastLink }
		require.NoError(t, s.send(t.Context(), "slow", time.Second))
		require.NoError(t, s.send(t.Context(), "by a worker", time.Second))
		require.Len(t, s.direct.arrived(), 2)
		require.Len(t, s.srv.arrived(), 4)
	})
}

// A command goes out with others where it can, because that costs less.
func TestACallerSendsByItselfOnlyIfNobodyElseSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.Sender.direct.fast = true
		s.direct.takes = func() time.Duration { return time.Millisecond }
		s.srv.takes = s.direct.takes
		var all sync.WaitGroup
		for range 3 { // while the first is sent by its caller, a worker sends the others
			all.Go(func() { require.NoError(t, s.send(t.Context(), "x", time.Second)) })
			synctest.Wait()
		}
		all.Wait()
		require.Len(t, s.direct.arrived(), 1)
		require.Len(t, s.srv.arrived(), 2)
		synctest.Wait() // a worker answers before it counts as idle

		all.Go(func() { require.NoError(t, s.send(t.Context(), "by its caller", time.Second)) })
		all.Go(func() { require.NoError(t, s.send(t.Context(), "by a worker", time.Second)) })
		synctest.Wait()
		time.Sleep(time.Millisecond / 2)
		all.Go(func() { require.NoError(t, s.send(t.Context(), "beside the worker", time.Second)) })
		all.Wait()
		require.Len(t, s.direct.arrived(), 2)

		s.mu.Lock()
		s.queue = append(s.queue, new(command))
		s.mu.Unlock()
		require.False(t, s.beginDirect(), "a command waits for a worker")
		s.queue = nil
	})
}

// go-redis gives up a command that its caller sends, and closes the connection. The command has no
// answer then, and nobody sends the next one in this way.
func TestACallerThatSendsByItselfReturnsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.Sender.direct.fast = true
		answers := s.cfg.Redis
		s.cfg.Redis = processFunc(func(ctx context.Context, cmd redis.Cmder) error {
			if !s.sentDirect(cmd) {
				return answers.Process(ctx, cmd)
			}
			_ = cmd.Args() // it is written
			deadline, _ := ctx.Deadline()
			time.Sleep(time.Until(deadline))
			return os.ErrDeadlineExceeded
		})
		a, began := s.Attempt(time.Hour, nil, false), time.Now()
		require.ErrorIs(t, a.Process(t.Context(), newCommand("x")), ErrUnanswered)
		require.Equal(t, DirectFor, time.Since(began))
		require.False(t, a.Unsent)
		require.Nil(t, a.Abandoned, "no answer will come")
		a.End()
		require.NoError(t, s.send(t.Context(), "by a worker", time.Second))
		require.Len(t, s.srv.arrived(), 1)
	})
}

// go-redis may wait for a connection. The context of the command ends that, at the same time or
// earlier with the attempt.
func TestACallerThatSendsByItselfDoesNotWaitForAConnection(t *testing.T) {
	for limit, after := range map[time.Duration]time.Duration{time.Hour: DirectFor, DirectFor / 2: DirectFor / 2} {
		synctest.Test(t, func(t *testing.T) {
			s := startDirect(t)
			s.Sender.direct.fast = true
			s.cfg.Redis = processFunc(func(ctx context.Context, _ redis.Cmder) error {
				require.NoError(t, ctx.Err())
				<-ctx.Done()
				return ctx.Err()
			})
			a, began := s.Attempt(limit, nil, false), time.Now()
			require.ErrorIs(t, a.Process(t.Context(), newCommand("x")), context.DeadlineExceeded)
			a.End()
			require.Equal(t, after, time.Since(began))
			require.True(t, a.Unsent)
		})
	}
}

// A cluster client counts a command as written before it has a connection. That it got none is no
// reason to believe that the command may still run.
func TestADialThatFailsIsNoMissingAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.Sender.direct.fast = true
		failed := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		s.cfg.Redis = processFunc(func(_ context.Context, cmd redis.Cmder) error {
			cmd.Args()
			return failed
		})
		a := s.Attempt(time.Second, nil, false)
		require.True(t, a.Direct)
		require.Equal(t, failed, a.Process(t.Context(), newCommand("lock")))
		a.End()
	})
}

// A hook that panics may leave go-redis with a lock that stays locked. A caller that waits for it
// would never return, but a worker may wait.
func TestAfterAPanicNoCallerSendsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.Sender.direct.fast = true
		panics := errors.New("a hook panicked")
		s.cfg.Panicked = func(any) error { return panics }
		answers := s.cfg.Redis
		s.cfg.Redis = processFunc(func(context.Context, redis.Cmder) error { panic("hook") })
		require.ErrorIs(t, s.send(t.Context(), "panics", time.Second), panics)
		s.cfg.Redis = answers
		for range 3 {
			require.NoError(t, s.send(t.Context(), "by a worker", time.Second))
		}
		require.Empty(t, s.direct.arrived())
		require.Len(t, s.srv.arrived(), 3)
	})
}

// A hook that ignores the end of its context keeps one caller, and no other one after it.
func TestACallerThatIsStuckIsTheLast(t *testing.T) {
	for hangs, never := range map[time.Duration]bool{DirectFor + stuckAfter - 1: false, DirectFor + stuckAfter + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			s := startDirect(t)
			s.Sender.direct.fast = true
			s.direct.takes = func() time.Duration { return hangs }
			go func() { _ = s.send(t.Context(), "stuck", time.Hour) }()
			synctest.Wait()
			require.NoError(t, s.send(t.Context(), "beside it", time.Second))
			time.Sleep(2 * hangs)
			require.NoError(t, s.send(t.Context(), "fast", time.Second))
			s.direct.takes = nil
			synctest.Wait() // the worker knows that it is answered
			require.NoError(t, s.send(t.Context(), "after it", time.Second))
			require.Equal(t, never, len(s.direct.arrived()) == 1)
		})
	}
}

// A hook that panics in the goroutine of a caller harms nobody after it.
func TestAPanicOfACallerThatSendsByItselfIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startDirect(t)
		s.Sender.direct.fast = true
		s.direct.does = func(redis.Cmder) { panic("the span is nil") }
		require.ErrorContains(t, s.send(t.Context(), "x", time.Second), "the span is nil")
		require.Zero(t, s.idleWorkers(), "no worker was needed")
	})
}
