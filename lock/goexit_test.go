package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// A caller that sends by itself may lose its goroutine in a hook. Nothing stays behind: not the
// lock, not the right to ask for it, and not a waiter.
func TestAHookThatEndsTheGoroutineOfACallerLeavesNothing(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	scripts := map[string]map[string]string{
		"acquire": {"mutex": "mutex/acquire", "fair": "fair/join", "semaphore": "semaphore/acquire"},
		"release": {"mutex": "mutex/release", "fair": "fair/leave", "semaphore": "semaphore/release"},
		"handoff": {"mutex": "mutex/transfer", "fair": "fair/leave", "semaphore": "semaphore/release"},
	}
	plays := map[string]func(a *stage.Actor, take func(ctx context.Context) (release func(context.Context) error, err error), hook *stage.GoexitHook){
		"acquire": func(a *stage.Actor, take func(ctx context.Context) (func(context.Context) error, error), hook *stage.GoexitHook) {
			hook.Times.Store(1)
			stage.InGoroutine(func() { _, _ = take(a.Ctx) })
		},
		"release": func(a *stage.Actor, take func(ctx context.Context) (func(context.Context) error, error), hook *stage.GoexitHook) {
			release, err := take(a.Ctx)
			require.NoError(a.Stage, err)
			hook.Times.Store(1)
			isReleased := false // the hook may have ended a goroutine of the client instead
			stage.InGoroutine(func() { isReleased = release(a.Ctx) == nil })
			time.Sleep(time.Second)
			if isReleased {
				require.ErrorIs(a.Stage, release(a.Ctx), redlatch.ErrNotHeld)
			} else {
				require.NoError(a.Stage, release(a.Ctx), "the background has released it, so it was not lost")
			}
		},
		"handoff": func(a *stage.Actor, take func(ctx context.Context) (func(context.Context) error, error), hook *stage.GoexitHook) {
			release, err := take(a.Ctx)
			require.NoError(a.Stage, err)
			waited := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(a.Ctx, lease/2)
				defer cancel()
				release, err := take(ctx)
				if err == nil {
					err = release(a.Ctx)
				}
				waited <- err
			}()
			time.Sleep(time.Millisecond)
			hook.Times.Store(1)
			stage.InGoroutine(func() { _ = release(a.Ctx) })
			require.NoError(a.Stage, <-waited)
		},
	}
	for play, kindsOfScript := range scripts {
		for kind, script := range kindsOfScript {
			for _, before := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/before=%v", play, kind, before), func(t *testing.T) {
					t.Parallel()
					stage.InVirtualTime(t, func(s *stage.Stage) {
						a := s.ActorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }}, redlatch.WithLease(lease))
						hook := &stage.GoexitHook{Script: script, Before: before}
						a.Redis.AddHook(hook)
						take := func(ctx context.Context) (func(context.Context) error, error) {
							_, release, err := stage.Kinds[kind].Take(a.Client, ctx)
							return release, err
						}
						// The client learns that Redis is near, and Redis learns the scripts.
						plays["handoff"](a, take, &stage.GoexitHook{})

						plays[play](a, take, hook)
						require.Negative(t, hook.Times.Add(-1), "the hook ended no goroutine")
						bounded, cancel := context.WithTimeout(a.Ctx, lease/2)
						defer cancel()
						for _, c := range []*stage.Actor{a, s.Actor()} {
							_, release, err := stage.Kinds[kind].Take(c.Client, bounded)
							require.NoError(t, err)
							require.NoError(t, release(a.Ctx))
						}
						require.NoError(t, a.Close(bounded))
						require.Zero(t, stage.NamesInUse(a.Client))
					})
				})
			}
		}
	}
}

// A plain lock that is freed goes to the first waiter of the fair mutex, with a command of its own.
// If a hook ends the goroutine of that command, or of a ForceRelease, the background serves the
// queue. The waiter asks by itself only after many seconds.
func TestAHookThatEndsTheGoroutineServesTheQueueAllTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		before bool
		forced bool
	}{
		{"fair/leave", true, false}, {"fair/leave", false, false},
		{"fair/leave", true, true}, {"fair/leave", false, true}, {"mutex/force_release", false, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a := s.ActorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				waiter := s.ActorAs(nil, redlatch.WithHeartbeat(time.Minute))
				hook := &stage.GoexitHook{Script: c.script, Before: c.before}
				a.Redis.AddHook(hook)
				for exits := range int64(2) { // in the first round Redis learns the scripts
					held, got := a.Lock("door"), make(chan error, 1)
					go func() {
						h, err := waiter.FairMutex("door").Lock(a.Ctx)
						if err == nil {
							err = h.Unlock(a.Ctx)
						}
						got <- err
					}()
					time.Sleep(100 * time.Millisecond)
					hook.Times.Store(exits)
					freed := time.Now()
					stage.InGoroutine(func() {
						if c.forced {
							_, _ = a.Mutex("door").ForceRelease(a.Ctx, held.ID())
						}
						_ = held.Unlock(a.Ctx)
					})
					require.NoError(t, <-got)
					require.Less(t, time.Since(freed), time.Second)
					require.LessOrEqual(t, hook.Times.Load(), int64(0), "the hook ended no goroutine")
					if c.forced {
						_ = held.Unlock(a.Ctx)
					}
				}
			})
		})
	}
}

// The client dials for its subscriptions in a goroutine of its own. If a dialer ends that
// goroutine, another one subscribes.
func TestADialerThatEndsTheGoroutineDoesNotEndTheSubscriptions(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		a, b := s.Actor(), s.Actor()
		s.Unlock(a.Lock("warm"))
		dialer := &dialExits{}
		a.Redis.AddHook(dialer)
		dialer.times.Store(3)
		for range 5 {
			held, got := b.Lock("door"), make(chan *lock.Hold, 1)
			go func() {
				h, err := a.Mutex("door", redlatch.WithPollInterval(time.Hour)).Lock(a.Ctx)
				assert.NoError(t, err)
				got <- h
			}()
			time.Sleep(20 * time.Second)
			require.NoError(t, held.Unlock(a.Ctx))
			freed := time.Now()
			s.Unlock(<-got)
			require.Less(t, time.Since(freed), time.Second, "it was notified")
		}
		require.LessOrEqual(t, dialer.times.Load(), int64(0), "the dialer ended no goroutine")
	})
}

// A dialer that ends each goroutine is not called more often than one that fails, and the log says
// once that nothing can be received.
func TestADialerThatAlwaysEndsTheGoroutineIsCalledRarely(t *testing.T) {
	t.Parallel()
	stage.InVirtualTime(t, func(s *stage.Stage) {
		var log stage.LogLines
		a, b := s.ActorAs(nil, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))), s.Actor()
		s.Unlock(a.Lock("warm"))
		dialer := &dialExits{}
		a.Redis.AddHook(dialer)
		const many = 1 << 30
		dialer.times.Store(many)
		held := b.Lock("door")
		ctx, cancel := context.WithTimeout(a.Ctx, time.Minute)
		defer cancel()
		_, err := a.Mutex("door").Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Less(t, many-dialer.times.Load(), int64(100))
		require.Contains(t, log.String(), "ended the goroutine of the pub/sub connection")
		require.Less(t, strings.Count(log.String(), "\n"), 10)
		s.Unlock(held)
	})
}

// dialExits ends goroutines that dial.
type dialExits struct{ times atomic.Int64 }

func (d *dialExits) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if d.times.Add(-1) >= 0 {
			runtime.Goexit()
		}
		return next(ctx, network, addr)
	}
}
func (*dialExits) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (*dialExits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Redis has as many holds as the client after a hook has ended the goroutine of a re-entry, or of
// the Unlock of an inner hold.
func TestAHookThatEndsTheGoroutineOfAReEntryLeavesTheRightCount(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"mutex/acquire", "mutex/release"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a := s.ActorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				hook := &stage.GoexitHook{Script: script, Before: script == "mutex/release"}
				a.Redis.AddHook(hook)
				outer := a.Lock("door")
				reenter := func() {
					inner, err := a.Mutex("door").Lock(outer.Context())
					if err == nil {
						_ = inner.Unlock(a.Ctx)
					}
				}
				hook.Times.Store(1)
				stage.InGoroutine(reenter)
				require.Negative(t, hook.Times.Add(-1), "the hook ended no goroutine")
				time.Sleep(time.Second)
				info, err := a.Mutex("door").Inspect(a.Ctx)
				require.NoError(t, err)
				require.Equal(t, 1, info.Holds)
				s.Unlock(outer)
			})
		})
	}
}

// The library sends by itself only in goroutines of its callers. If a hook ends a goroutine while
// the client closes, or cleans up, the command is sent again.
func TestAHookThatEndsGoroutinesDoesNotDisturbClose(t *testing.T) {
	t.Parallel()
	for _, cleansUp := range []bool{false, true} {
		t.Run(fmt.Sprint("cleanup=", cleansUp), func(t *testing.T) {
			t.Parallel()
			stage.InVirtualTime(t, func(s *stage.Stage) {
				a := s.ActorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				hook := &stage.GoexitHook{Script: "mutex/release", Before: true}
				a.Redis.AddHook(hook)
				s.Unlock(a.Lock("door"))
				if cleansUp {
					lost := &stage.GoexitHook{Script: "mutex/acquire"}
					lost.Times.Store(1)
					a.Redis.AddHook(lost)
					stage.InGoroutine(func() { _, _ = a.Mutex("door").Lock(a.Ctx) })
				} else {
					a.Lock("door")
				}
				hook.Times.Store(2)
				bounded, cancel := context.WithTimeout(a.Ctx, 5*time.Second)
				defer cancel()
				require.NoError(t, a.Close(bounded))
				require.Empty(t, s.Admin.HGetAll(a.Ctx, "door").Val())
			})
		})
	}
}
