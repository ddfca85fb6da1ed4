package redlatch_test

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
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
)

// exits ends the goroutine that sends a script, as FailNow of a test does in a hook.
type exits struct {
	script string
	before bool // before the script is sent; otherwise after its answer
	times  atomic.Int64
}

func (e *exits) DialHook(next redis.DialHook) redis.DialHook { return next }
func (e *exits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return redistest.OneByOne(e, next)
}
func (e *exits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		bites := scriptOf(cmd) == e.script && e.times.Add(-1) >= 0
		if bites && e.before {
			runtime.Goexit()
		}
		err := next(ctx, cmd)
		if bites {
			runtime.Goexit()
		}
		return err
	}
}

// A caller that sends by itself may lose its goroutine in a hook. Nothing stays behind: not the lock,
// not the right to ask for it, and not a waiter.
func TestAHookThatEndsTheGoroutineOfACallerLeavesNothing(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	scripts := map[string]map[string]string{
		"acquire": {"mutex": "mutex/acquire", "fair": "fair/join", "semaphore": "semaphore/acquire"},
		"release": {"mutex": "mutex/release", "fair": "fair/leave", "semaphore": "semaphore/release"},
		"handoff": {"mutex": "mutex/transfer", "fair": "fair/leave", "semaphore": "semaphore/release"},
	}
	plays := map[string]func(a *actor, take func(ctx context.Context) (release func(context.Context) error, err error), hook *exits){
		"acquire": func(a *actor, take func(ctx context.Context) (func(context.Context) error, error), hook *exits) {
			hook.times.Store(1)
			inGoroutine(func() { _, _ = take(a.ctx) })
		},
		"release": func(a *actor, take func(ctx context.Context) (func(context.Context) error, error), hook *exits) {
			release, err := take(a.ctx)
			require.NoError(a.s, err)
			hook.times.Store(1)
			isReleased := false // the hook may have ended a goroutine of the client instead
			inGoroutine(func() { isReleased = release(a.ctx) == nil })
			time.Sleep(time.Second)
			if isReleased {
				require.ErrorIs(a.s, release(a.ctx), redlatch.ErrNotHeld)
			} else {
				require.NoError(a.s, release(a.ctx), "the background has released it, so it was not lost")
			}
		},
		"handoff": func(a *actor, take func(ctx context.Context) (func(context.Context) error, error), hook *exits) {
			release, err := take(a.ctx)
			require.NoError(a.s, err)
			waited := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(a.ctx, lease/2)
				defer cancel()
				release, err := take(ctx)
				if err == nil {
					err = release(a.ctx)
				}
				waited <- err
			}()
			time.Sleep(time.Millisecond)
			hook.times.Store(1)
			inGoroutine(func() { _ = release(a.ctx) })
			require.NoError(a.s, <-waited)
		},
	}
	for play, kindsOfScript := range scripts {
		for kind, script := range kindsOfScript {
			for _, before := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/before=%v", play, kind, before), func(t *testing.T) {
					t.Parallel()
					inVirtualTime(t, func(s *stage) {
						a := s.actorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }}, redlatch.WithLease(lease))
						hook := &exits{script: script, before: before}
						a.rdb.AddHook(hook)
						take := func(ctx context.Context) (func(context.Context) error, error) {
							_, release, err := kinds[kind].take(a.Client, ctx)
							return release, err
						}
						// The client learns that Redis is near, and Redis learns the scripts.
						plays["handoff"](a, take, &exits{})

						plays[play](a, take, hook)
						require.Negative(t, hook.times.Add(-1), "the hook ended no goroutine")
						bounded, cancel := context.WithTimeout(a.ctx, lease/2)
						defer cancel()
						for _, c := range []*actor{a, s.actor()} {
							_, release, err := kinds[kind].take(c.Client, bounded)
							require.NoError(t, err)
							require.NoError(t, release(a.ctx))
						}
						require.NoError(t, a.Close(bounded))
						require.Zero(t, redlatch.NamesInUse(a.Client))
					})
				})
			}
		}
	}
}

// A plain lock that is freed goes to the first waiter of the fair mutex, with a command of its own. If a
// hook ends the goroutine of that command, or of a ForceRelease, the background serves the queue. The
// waiter asks by itself only after many seconds.
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
			inVirtualTime(t, func(s *stage) {
				a := s.actorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				waiter := s.actorAs(nil, redlatch.WithHeartbeat(time.Minute))
				hook := &exits{script: c.script, before: c.before}
				a.rdb.AddHook(hook)
				for exits := range int64(2) { // in the first round Redis learns the scripts
					held, got := a.lock("door"), make(chan error, 1)
					go func() {
						h, err := waiter.FairMutex("door").Lock(a.ctx)
						if err == nil {
							err = h.Unlock(a.ctx)
						}
						got <- err
					}()
					time.Sleep(100 * time.Millisecond)
					hook.times.Store(exits)
					freed := time.Now()
					inGoroutine(func() {
						if c.forced {
							_, _ = a.Mutex("door").ForceRelease(a.ctx, held.ID())
						}
						_ = held.Unlock(a.ctx)
					})
					require.NoError(t, <-got)
					require.Less(t, time.Since(freed), time.Second)
					require.LessOrEqual(t, hook.times.Load(), int64(0), "the hook ended no goroutine")
					if c.forced {
						_ = held.Unlock(a.ctx)
					}
				}
			})
		})
	}
}

// The client dials for its subscriptions in a goroutine of its own. If a dialer ends that goroutine,
// another one subscribes.
func TestADialerThatEndsTheGoroutineDoesNotEndTheSubscriptions(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		a, b := s.actor(), s.actor()
		s.unlock(a.lock("warm"))
		dialer := &dialExits{}
		a.rdb.AddHook(dialer)
		dialer.times.Store(3)
		for range 5 {
			held, got := b.lock("door"), make(chan *lock.Hold, 1)
			go func() {
				h, err := a.Mutex("door", redlatch.WithPollInterval(time.Hour)).Lock(a.ctx)
				assert.NoError(t, err)
				got <- h
			}()
			time.Sleep(20 * time.Second)
			require.NoError(t, held.Unlock(a.ctx))
			freed := time.Now()
			s.unlock(<-got)
			require.Less(t, time.Since(freed), time.Second, "it was notified")
		}
		require.LessOrEqual(t, dialer.times.Load(), int64(0), "the dialer ended no goroutine")
	})
}

// A dialer that ends each goroutine is not called more often than one that fails, and the log says once
// that nothing can be received.
func TestADialerThatAlwaysEndsTheGoroutineIsCalledRarely(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(s *stage) {
		var log logLines
		a, b := s.actorAs(nil, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))), s.actor()
		s.unlock(a.lock("warm"))
		dialer := &dialExits{}
		a.rdb.AddHook(dialer)
		const many = 1 << 30
		dialer.times.Store(many)
		held := b.lock("door")
		ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
		defer cancel()
		_, err := a.Mutex("door").Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Less(t, many-dialer.times.Load(), int64(100))
		require.Contains(t, log.String(), "ended the goroutine of the pub/sub connection")
		require.Less(t, strings.Count(log.String(), "\n"), 10)
		s.unlock(held)
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

// Redis has as many holds as the client after a hook has ended the goroutine of a re-entry, or of the
// Unlock of an inner hold.
func TestAHookThatEndsTheGoroutineOfAReEntryLeavesTheRightCount(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"mutex/acquire", "mutex/release"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				a := s.actorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				hook := &exits{script: script, before: script == "mutex/release"}
				a.rdb.AddHook(hook)
				outer := a.lock("door")
				reenter := func() {
					inner, err := a.Mutex("door").Lock(outer.Context())
					if err == nil {
						_ = inner.Unlock(a.ctx)
					}
				}
				hook.times.Store(1)
				inGoroutine(reenter)
				require.Negative(t, hook.times.Add(-1), "the hook ended no goroutine")
				time.Sleep(time.Second)
				info, err := a.Mutex("door").Inspect(a.ctx)
				require.NoError(t, err)
				require.Equal(t, 1, info.Holds)
				s.unlock(outer)
			})
		})
	}
}

// The library sends by itself only in goroutines of its callers. If a hook ends a goroutine while the
// client closes, or cleans up, the command is sent again.
func TestAHookThatEndsGoroutinesDoesNotDisturbClose(t *testing.T) {
	t.Parallel()
	for _, cleansUp := range []bool{false, true} {
		t.Run(fmt.Sprint("cleanup=", cleansUp), func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(s *stage) {
				a := s.actorAs([]func(*redis.Options){func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
				hook := &exits{script: "mutex/release", before: true}
				a.rdb.AddHook(hook)
				s.unlock(a.lock("door"))
				if cleansUp {
					lost := &exits{script: "mutex/acquire"}
					lost.times.Store(1)
					a.rdb.AddHook(lost)
					inGoroutine(func() { _, _ = a.Mutex("door").Lock(a.ctx) })
				} else {
					a.lock("door")
				}
				hook.times.Store(2)
				bounded, cancel := context.WithTimeout(a.ctx, 5*time.Second)
				defer cancel()
				require.NoError(t, a.Close(bounded))
				require.Empty(t, s.admin.HGetAll(a.ctx, "door").Val())
			})
		})
	}
}

// inGoroutine runs f in a goroutine, which f may end.
func inGoroutine(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}
