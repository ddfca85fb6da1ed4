package lock_test

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
	"github.com/redlatch/redlatch/internal/test/stage"
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
		call      func(s *stage.Scene, held *lock.Hold, ctx context.Context) error
	}{
		"lock": {stage.AnAcquire, func(s *stage.Scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.Locks.Mutex("unharmed").Lock(ctx)
			return err
		}},
		"try": {stage.AnAcquire, func(s *stage.Scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.Locks.Mutex("unharmed").TryLock(ctx)
			return err
		}},
		"re-entry": {stage.AReentry, func(s *stage.Scene, held *lock.Hold, ctx context.Context) error {
			ctx, cancel := merge(held.Context(), ctx)
			defer cancel()
			_, err := s.Mutex.Lock(ctx)
			return err
		}},
		"unlock": {stage.ALastOne, func(_ *stage.Scene, held *lock.Hold, ctx context.Context) error {
			return held.Unlock(ctx)
		}},
		"inspect": {stage.AnyScript, func(s *stage.Scene, _ *lock.Hold, ctx context.Context) error {
			_, err := s.Mutex.Inspect(ctx)
			return err
		}},
	}
	for ending, begin := range endings {
		for name, c := range calls {
			t.Run(name+", "+ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := stage.InBubble(t)
					held := s.Lock(context.Background())
					swallow := s.Proxy.Inject(redistest.Rule{Match: c.swallowed, Action: redistest.Swallow()})
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
			locks := stage.LocksOn(t, proxy.Client())
			outer := stage.MustLock(t, context.Background(), locks.Mutex(redistest.Name(t)))
			unlocks := map[string]func(context.Context) error{}
			for i := range 10 {
				name := fmt.Sprintf("%s %d", redistest.Name(t), i)
				unlocks["lock "+name] = stage.MustLock(t, outer.Context(), locks.Mutex(name)).Unlock
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
		s := stage.InBubble(t)
		s.Unlock(s.Lock(context.Background())) // the client knows the server's clock
		loading := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 2, Action: redistest.Refuse("LOADING Redis is loading")})
		swallow := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Action: redistest.Swallow()})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
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
				s := stage.InBubble(t)
				s.Unlock(s.Lock(context.Background())) // the client learns the server's clock
				late := s.Proxy.Inject(redistest.Rule{Match: stage.AnAcquire, Times: 1, Action: redistest.DelayReply(time.Second)})
				ctx, cancel := begin(context.Background())
				defer cancel()
				_, err := s.Mutex.Lock(ctx)
				require.ErrorIs(t, err, ctx.Err())
				late.Await(1)
				synctest.Wait()
				s.Free()

				next := s.Lock(context.Background()) // nobody waits for a lease
				s.Unlock(next)
				s.NothingLeft()
			})
		})
	}
}

func TestUnlockWithAnEndedContextUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		h := s.Lock(context.Background())
		require.NoError(t, h.Unlock(dead))
		s.Free()
		s.NothingLeft()
	})
}

// The first duty of Lock to a context: not to start when it has ended.
func TestLockWithAnEndedContextAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		reason := errors.New("the request was withdrawn")
		dead, cancel := context.WithCancelCause(context.Background())
		cancel(reason)
		s.Proxy.ResetCounts()
		_, err := s.Mutex.Lock(dead)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "nobody was in the way")
		require.Zero(t, s.Proxy.Forwarded())
		s.NothingLeft()
	})
}

// An Unlock that could not reach Redis goes on in the background, and the caller may call it again.
func TestUnlockThatGaveUpIsFinishedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		h := s.Lock(context.Background())
		s.Proxy.Down()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := h.Unlock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		s.Proxy.Up()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.Free()
		require.NoError(t, h.Unlock(context.Background()), "released, and not by anybody else")
		require.ErrorIs(t, h.Unlock(context.Background()), redlatch.ErrNotHeld)
		s.NothingLeft()
	})
}

// An Unlock gave up while another command of the acquisition hung. The client finishes it when that
// command has ended, however late. Otherwise it would renew a hold for ever that nobody uses any
// more.
func TestUnlockThatGaveUpWaitsForACommandThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t, redlatch.WithLease(stage.ShortLease), redlatch.WithRenewInterval(stage.ShortRenewal))
		h := s.Lock(context.Background())
		hang := s.Proxy.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return stage.AReentry(cmd) || stage.AnInnerOne(cmd) },
			Action: redistest.SilenceBoth(),
		})
		within := func(d time.Duration, op func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(h.Context(), d)
			defer cancel()
			return op(ctx)
		}
		reentered := make(chan error, 1)
		go func() {
			reentered <- within(stage.ShortLease, func(ctx context.Context) error { _, err := s.Mutex.Lock(ctx); return err })
		}()
		synctest.Wait()
		require.ErrorIs(t, within(time.Millisecond, h.Unlock), redlatch.ErrIndeterminate)
		time.Sleep(stage.ShortLease - 2*time.Millisecond)
		require.False(t, h.Trusted(), "its Unlock has begun")
		require.Len(t, s.Stored(), 1, "the renewals come through")
		require.ErrorIs(t, <-reentered, redlatch.ErrIndeterminate)
		hang.Disarm()
		time.Sleep(stage.ShortLease)
		synctest.Wait()
		s.Free()
		require.NoError(t, h.Unlock(context.Background()), "released, and not by anybody else")
		require.ErrorIs(t, h.Unlock(context.Background()), redlatch.ErrNotHeld)
		s.NothingLeft()
	})
}

// The deadline of a context below that of a hold counts, also if the hold is released by this call
// or by another. The hold's context ends then, and so the deadline cannot come any more.
func TestADeadlineBelowAHoldOutlivesTheHold(t *testing.T) {
	const most = time.Second
	calls := map[string]func(s *stage.Scene, outer *lock.Hold, ctx context.Context) error{
		"Unlock": func(_ *stage.Scene, outer *lock.Hold, ctx context.Context) error { return outer.Unlock(ctx) },
		"Close":  func(s *stage.Scene, _ *lock.Hold, ctx context.Context) error { return s.Locks.Close(ctx) },
		"Unlock of another lock, while the hold is released": func(s *stage.Scene, outer *lock.Hold, ctx context.Context) error {
			s.Proxy.Heal()
			inner, err := s.Locks.Mutex("inner").Lock(outer.Context())
			require.NoError(s.T, err)
			s.Proxy.Inject(redistest.Rule{
				Match:  func(cmd []string) bool { return stage.ALastOne(cmd) && cmd[3] == "inner" },
				Action: redistest.Swallow(),
			})
			unlocked := make(chan error, 1)
			go func() { unlocked <- inner.Unlock(ctx) }()
			s.Settle()
			s.Unlock(outer)
			return <-unlocked
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				outer := s.Lock(context.Background())
				s.Proxy.BlackHole(redistest.AllTraffic)
				ctx, cancel := context.WithTimeout(outer.Context(), most)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, call(s, outer, ctx), context.DeadlineExceeded)
				require.Less(t, time.Since(start), most+50*time.Millisecond)
				s.Proxy.Heal()
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
	cases := map[string]func(s *stage.Scene, begin func(call func(context.Context) error, ctx context.Context)) (end func()){
		"another hold is released": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			other, mine := stage.MustLock(s.T, background, s.Locks.Mutex("unharmed")), s.Lock(background)
			begin(mine.Unlock, other.Context())
			return func() { s.Unlock(other) }
		},
		"another hold of one WithOwner is released": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			chain := redlatch.WithOwner(background)
			other, mine := stage.MustLock(s.T, chain, s.Locks.Mutex("unharmed")), s.Lock(chain)
			begin(mine.Unlock, other.Context())
			return func() { s.Unlock(other) }
		},
		"a permit beside is released": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			outer := stage.MustLock(s.T, background, s.Locks.Mutex("outer"))
			stage.KeepHandle(s.T, outer)
			other, err := s.Locks.Semaphore("unharmed", 2).Acquire(outer.Context(), 1)
			require.NoError(s.T, err)
			mine, err := s.Locks.Semaphore("mine", 2).Acquire(outer.Context(), 1)
			require.NoError(s.T, err)
			begin(mine.Release, other.Context())
			return func() { require.NoError(s.T, other.Release(background)) }
		},
		"another client closes": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			other := stage.NewScene(s.T, s.Proxy, s.Direct, s.Direct)
			held := stage.MustLock(s.T, background, other.Locks.Mutex("unharmed"))
			stage.KeepHandle(s.T, held)
			stage.KeepHandle(s.T, s.Lock(background))
			begin(s.Locks.Close, held.Context())
			return func() { require.NoError(s.T, other.Locks.Close(background)) }
		},
		"the caller cancels with the cause of another hold": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			other := stage.MustLock(s.T, background, s.Locks.Mutex("unharmed"))
			ended := other.Context()
			s.Unlock(other)
			mine := s.Lock(background)
			ctx, cancel := context.WithCancelCause(background)
			begin(mine.Unlock, ctx)
			return func() { cancel(context.Cause(ended)) }
		},
		"the caller cancels with an error around the cause": func(s *stage.Scene, begin func(func(context.Context) error, context.Context)) func() {
			mine := s.Lock(background)
			ended := mine.Context()
			ctx, cancel := context.WithCancelCause(background)
			begin(mine.Unlock, ctx)
			return func() { cancel(fmt.Errorf("a part of the job is over: %w", context.Cause(ended))) }
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				answered := make(chan error, 1)
				end := play(s, func(call func(context.Context) error, ctx context.Context) {
					s.Proxy.Inject(redistest.Rule{
						Match: func(cmd []string) bool {
							return strings.HasSuffix(lua.ScriptName(cmd), "release") && !strings.Contains(cmd[3], "unharmed")
						},
						// Once: the background repeats the release that gave up. If it sent that
						// together with the release of the other hold, both would be lost.
						Times:  1,
						Action: redistest.Swallow(),
					})
					go func() { answered <- call(ctx) }()
					s.Settle()
					require.Empty(t, answered)
				})
				start := time.Now()
				end()
				require.ErrorIs(t, <-answered, context.Canceled)
				require.Less(t, time.Since(start), 500*time.Millisecond)
				s.Proxy.Heal()
				time.Sleep(time.Minute)
			})
		})
	}
}

// If Redis does not answer, that does not mean that somebody has the lock.
func TestOutageIsDistinguishedFromContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		s.Proxy.Down()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Mutex.Lock(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		_, err = s.Mutex.TryLock(context.Background())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		s.Proxy.Up()
		s.Unlock(s.Lock(context.Background()))
		s.NothingLeft()
		time.Sleep(10 * time.Second) // for go-redis, which goes on dialling for callers that have left
	})
}
