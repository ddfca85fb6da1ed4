package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// The goal of this file: a call returns when its context ends, whatever Redis does, with a go-redis
// client of default options. If a caller has left, the client releases a late grant. Time is
// virtual, so the limit of 50 ms is exact and does not depend on the machine.

const prompt = 50 * time.Millisecond

// endings are the two ways in which a context ends, 100 ms from now.
var endings = map[string]func(context.Context) (context.Context, context.CancelFunc){
	"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 100*time.Millisecond)
	},
	"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		return ctx, cancel
	},
}

func TestCallsReturnWithTheirContextInABlackHole(t *testing.T) {
	calls := map[string]struct {
		swallowed func([]string) bool
		call      func(s *scene, held *lock.Hold, ctx context.Context) error
	}{
		"lock": {anAcquire, func(s *scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.locks.Mutex("unharmed").Lock(ctx)
			return err
		}},
		"try": {anAcquire, func(s *scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.locks.Mutex("unharmed").TryLock(ctx)
			return err
		}},
		"re-entry": {aReentry, func(s *scene, held *lock.Hold, ctx context.Context) error {
			ctx, cancel := merge(held.Context(), ctx)
			defer cancel()
			_, err := s.mu.Lock(ctx)
			return err
		}},
		"unlock": {aLastOne, func(_ *scene, held *lock.Hold, ctx context.Context) error {
			return held.Unlock(ctx)
		}},
		"inspect": {anyScript, func(s *scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.mu.Inspect(ctx)
			return err
		}},
	}
	for ending, begin := range endings {
		for name, c := range calls {
			t.Run(name+", "+ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := inBubble(t)
					held := s.lock(context.Background())
					swallow := s.proxy.Inject(redistest.Rule{Match: c.swallowed, Action: redistest.Swallow()})
					ctx, cancel := begin(context.Background())
					defer cancel()
					start := time.Now()
					err := c.call(s, held, ctx)
					require.Error(t, ctx.Err(), "it has ended")
					require.LessOrEqual(t, time.Since(start), 100*time.Millisecond+prompt)
					require.NotZero(t, swallow.Bites())
					require.ErrorIs(t, err, ctx.Err())
					require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "nobody else has it")
					require.ErrorIs(t, err, redlatch.ErrIndeterminate)
					swallow.Disarm()
				})
			})
		}
	}
}

// The context of an Unlock may be of the chain of its hold, and that of a Release may be any
// context. These calls do not simply end with their context, because it may end because of them.
// Nevertheless their error says why they gave up. The test uses real time, because in a bubble
// their deadline and that of the context are the same instant.
func TestUnlockByAContextOfItsChainSaysWhyItGaveUp(t *testing.T) {
	s := redistest.Start(t)
	for ending, begin := range endings {
		t.Run(ending, func(t *testing.T) {
			proxy := redistest.NewProxy(t, s.Addr())
			locks := locksOn(t, proxy.Client())
			outer := mustLock(t, context.Background(), locks.Mutex(redistest.Name(t)))
			unlocks := map[string]func(context.Context) error{}
			for i := range 10 {
				name := fmt.Sprintf("%s %d", redistest.Name(t), i)
				unlocks["lock "+name] = mustLock(t, outer.Context(), locks.Mutex(name)).Unlock
				permit, err := locks.Semaphore(name, 1).Acquire(context.Background(), 1)
				require.NoError(t, err)
				unlocks["permit "+name] = permit.Release
			}
			proxy.BlackHole(redistest.AllTraffic)
			defer proxy.KillAll()
			defer proxy.Heal()
			var g errgroup.Group
			for what, unlock := range unlocks {
				g.Go(func() error {
					ctx, cancel := begin(outer.Context())
					defer cancel()
					err := unlock(ctx)
					if !errors.Is(err, ctx.Err()) {
						return fmt.Errorf("%s: %w", what, err)
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
		})
	}
}

// The error also says what went wrong earlier, if the end came during a later attempt. That attempt
// itself says only that time ran out.
func TestErrorSaysWhatWasWrongBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		s.unlock(s.lock(context.Background())) // the client knows the server's clock
		loading := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 2, Action: redistest.Refuse("LOADING Redis is loading")})
		swallow := s.proxy.Inject(redistest.Rule{Match: anAcquire, Action: redistest.Swallow()})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.mu.Lock(ctx)
		require.Equal(t, 2, loading.Bites())
		require.NotZero(t, swallow.Bites())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "LOADING")
		swallow.Disarm()
	})
}

// merge is a context with the values of one and the end of another.
func merge(values, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(values)
	stop := context.AfterFunc(end, func() { cancel(end.Err()) })
	return endsLike{ctx, end}, func() { stop(); cancel(nil) }
}

type endsLike struct {
	context.Context
	end context.Context
}

func (e endsLike) Err() error {
	if e.Context.Err() != nil {
		return e.end.Err()
	}
	return nil
}

// If the reply of a grant comes after the caller has left, the client releases the lock
// immediately, and not when its lease ends.
func TestLateGrantIsReleased(t *testing.T) {
	for ending, begin := range endings {
		t.Run(ending, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				s.unlock(s.lock(context.Background())) // the client learns the server's clock
				late := s.proxy.Inject(redistest.Rule{Match: anAcquire, Times: 1, Action: redistest.DelayReply(time.Second)})
				ctx, cancel := begin(context.Background())
				defer cancel()
				_, err := s.mu.Lock(ctx)
				require.ErrorIs(t, err, ctx.Err())
				late.Await(1)
				synctest.Wait()
				s.free()

				next := s.lock(context.Background()) // nobody waits for a lease
				s.unlock(next)
				s.nothingLeft()
			})
		})
	}
}

func TestUnlockWithAnEndedContextUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		h := s.lock(context.Background())
		require.NoError(t, h.Unlock(dead))
		s.free()
		s.nothingLeft()
	})
}

// The first duty of Lock to a context: not to start when it has ended.
func TestLockWithAnEndedContextAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		reason := errors.New("the request was withdrawn")
		dead, cancel := context.WithCancelCause(context.Background())
		cancel(reason)
		s.proxy.ResetCounts()
		_, err := s.mu.Lock(dead)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "nobody was in the way")
		require.Zero(t, s.proxy.Forwarded())
		s.nothingLeft()
	})
}

// An Unlock that could not reach Redis goes on in the background, and the caller may call it again.
func TestUnlockThatGaveUpIsFinishedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		h := s.lock(context.Background())
		s.proxy.Down()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := h.Unlock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		s.proxy.Up()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.free()
		require.NoError(t, h.Unlock(context.Background()), "released, and not by anybody else")
		require.ErrorIs(t, h.Unlock(context.Background()), redlatch.ErrNotHeld)
		s.nothingLeft()
	})
}

// An Unlock gave up while another command of the acquisition hung. The client finishes it when that
// command has ended, however late. Otherwise it would renew a hold for ever that nobody uses any
// more.
func TestUnlockThatGaveUpWaitsForACommandThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t, redlatch.WithLease(lossLease), redlatch.WithRenewInterval(lossRenewal))
		h := s.lock(context.Background())
		hang := s.proxy.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return aReentry(cmd) || anInnerOne(cmd) },
			Action: redistest.SilenceBoth(),
		})
		within := func(d time.Duration, op func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(h.Context(), d)
			defer cancel()
			return op(ctx)
		}
		reentered := make(chan error, 1)
		go func() {
			reentered <- within(lossLease, func(ctx context.Context) error { _, err := s.mu.Lock(ctx); return err })
		}()
		synctest.Wait()
		require.ErrorIs(t, within(time.Millisecond, h.Unlock), redlatch.ErrIndeterminate)
		time.Sleep(lossLease - 2*time.Millisecond)
		require.False(t, h.Trusted(), "its Unlock has begun")
		require.Len(t, s.stored(), 1, "the renewals come through")
		require.ErrorIs(t, <-reentered, redlatch.ErrIndeterminate)
		hang.Disarm()
		time.Sleep(lossLease)
		synctest.Wait()
		s.free()
		require.NoError(t, h.Unlock(context.Background()), "released, and not by anybody else")
		require.ErrorIs(t, h.Unlock(context.Background()), redlatch.ErrNotHeld)
		s.nothingLeft()
	})
}

// The deadline of a context below that of a hold counts, also if the hold is released by this call
// or by another. The hold's context ends then, and so the deadline cannot come any more.
func TestADeadlineBelowAHoldOutlivesTheHold(t *testing.T) {
	const most = time.Second
	calls := map[string]func(s *scene, outer *lock.Hold, ctx context.Context) error{
		"Unlock": func(_ *scene, outer *lock.Hold, ctx context.Context) error { return outer.Unlock(ctx) },
		"Close":  func(s *scene, _ *lock.Hold, ctx context.Context) error { return s.locks.Close(ctx) },
		"Unlock of another lock, while the hold is released": func(s *scene, outer *lock.Hold, ctx context.Context) error {
			s.proxy.Heal()
			inner, err := s.locks.Mutex("inner").Lock(outer.Context())
			require.NoError(s.t, err)
			s.proxy.Inject(redistest.Rule{
				Match:  func(cmd []string) bool { return aLastOne(cmd) && cmd[3] == "inner" },
				Action: redistest.Swallow(),
			})
			unlocked := make(chan error, 1)
			go func() { unlocked <- inner.Unlock(ctx) }()
			s.settle()
			s.unlock(outer)
			return <-unlocked
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				outer := s.lock(context.Background())
				s.proxy.BlackHole(redistest.AllTraffic)
				ctx, cancel := context.WithTimeout(outer.Context(), most)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, call(s, outer, ctx), context.DeadlineExceeded)
				require.Less(t, time.Since(start), most+50*time.Millisecond)
				s.proxy.Heal()
				time.Sleep(time.Minute)
			})
		})
	}
}

// A call goes on if its context ends because of what the call itself does. Any other end counts,
// even with the same words: another hold is released, another client closes, or the caller cancels
// with such an error.
func TestTheEndOfAnotherHoldIsTheEndOfAContext(t *testing.T) {
	background := context.Background()
	// Each case begins the call, and returns the function that ends its context.
	cases := map[string]func(s *scene, begin func(call func(context.Context) error, ctx context.Context)) (end func()){
		"another hold is released": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			other, mine := mustLock(s.t, background, s.locks.Mutex("unharmed")), s.lock(background)
			begin(mine.Unlock, other.Context())
			return func() { s.unlock(other) }
		},
		"another hold of one WithOwner is released": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			chain := redlatch.WithOwner(background)
			other, mine := mustLock(s.t, chain, s.locks.Mutex("unharmed")), s.lock(chain)
			begin(mine.Unlock, other.Context())
			return func() { s.unlock(other) }
		},
		"a permit beside is released": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			outer := mustLock(s.t, background, s.locks.Mutex("outer"))
			keepHandle(s.t, outer)
			other, err := s.locks.Semaphore("unharmed", 2).Acquire(outer.Context(), 1)
			require.NoError(s.t, err)
			mine, err := s.locks.Semaphore("mine", 2).Acquire(outer.Context(), 1)
			require.NoError(s.t, err)
			begin(mine.Release, other.Context())
			return func() { require.NoError(s.t, other.Release(background)) }
		},
		"another client closes": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			other := newScene(s.t, s.proxy, s.direct, s.direct)
			held := mustLock(s.t, background, other.locks.Mutex("unharmed"))
			keepHandle(s.t, held)
			keepHandle(s.t, s.lock(background))
			begin(s.locks.Close, held.Context())
			return func() { require.NoError(s.t, other.locks.Close(background)) }
		},
		"the caller cancels with the cause of another hold": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			other := mustLock(s.t, background, s.locks.Mutex("unharmed"))
			ended := other.Context()
			s.unlock(other)
			mine := s.lock(background)
			ctx, cancel := context.WithCancelCause(background)
			begin(mine.Unlock, ctx)
			return func() { cancel(context.Cause(ended)) }
		},
		"the caller cancels with an error around the cause": func(s *scene, begin func(func(context.Context) error, context.Context)) func() {
			mine := s.lock(background)
			ended := mine.Context()
			ctx, cancel := context.WithCancelCause(background)
			begin(mine.Unlock, ctx)
			return func() { cancel(fmt.Errorf("a part of the job is over: %w", context.Cause(ended))) }
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inBubble(t)
				answered := make(chan error, 1)
				end := play(s, func(call func(context.Context) error, ctx context.Context) {
					s.proxy.Inject(redistest.Rule{
						Match: func(cmd []string) bool {
							return strings.HasSuffix(lua.ScriptName(cmd), "release") && !strings.Contains(cmd[3], "unharmed")
						},
						// Once: the background repeats the release that gave up. If it sent that
						// together with the release of the other hold, both would be lost.
						Times:  1,
						Action: redistest.Swallow(),
					})
					go func() { answered <- call(ctx) }()
					s.settle()
					require.Empty(t, answered)
				})
				start := time.Now()
				end()
				require.ErrorIs(t, <-answered, context.Canceled)
				require.Less(t, time.Since(start), 500*time.Millisecond)
				s.proxy.Heal()
				time.Sleep(time.Minute)
			})
		})
	}
}

// If Redis does not answer, that does not mean that somebody has the lock.
func TestOutageIsDistinguishedFromContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inBubble(t)
		s.proxy.Down()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.mu.Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		_, err = s.mu.TryLock(context.Background())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		s.proxy.Up()
		s.unlock(s.lock(context.Background()))
		s.nothingLeft()
		time.Sleep(10 * time.Second) // for go-redis, which goes on dialling for callers that have left
	})
}
