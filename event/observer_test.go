package event_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: an observer is notified of each fact once, with its numbers, and can count
// waits and holds up and down. It harms nothing, whether it panics or blocks.

// RecorderKey is the key of a context value that a Recorder notes.

// Forget makes Of start after all events so far.

// InObservedBubble plays a scene with a recorder in virtual time. At the end, every wait and every
// grant must have ended.

func TestAFreeLockHasThreeEvents(t *testing.T) {
	for primitive, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				ctx := context.WithValue(t.Context(), stage.RecorderKey{}, "the caller's")
				h, release, err := stage.Kinds[kind].Take(s.Locks, ctx)
				require.NoError(t, err)
				id := h.(interface{ ID() string }).ID()
				time.Sleep(time.Second)
				require.NoError(t, release(ctx))
				fence := int64(0)
				if hold, ok := h.(*lock.Hold); ok {
					fence = hold.Fence()
				}
				require.Equal(t, []event.Event{
					{Kind: event.WaitBegan, Primitive: primitive, Name: "orders", Units: 1},
					{Kind: event.WaitEnded, Primitive: primitive, Name: "orders", Units: 1, Result: event.Acquired, Source: event.Redis, ID: id, Fence: fence},
					{Kind: event.Released, Primitive: primitive, Name: "orders", Units: 1, ID: id, Fence: fence, Duration: time.Second},
				}, s.Of())
				require.Equal(t, []any{"the caller's", "the caller's", "the caller's"}, s.Values)
				s.Forget()

				busy, releaseOther, err := stage.Kinds[kind].Take(s.Other, ctx)
				require.NoError(t, err)
				err = stage.TryCalls[primitive](s.Locks, ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.Equal(t, []event.Event{
					{Kind: event.WaitBegan, Primitive: primitive, Name: "orders", Units: 1, Try: true},
					{Kind: event.WaitEnded, Primitive: primitive, Name: "orders", Units: 1, Try: true, Result: event.Busy, Err: err},
				}, s.Of())
				runtime.KeepAlive(busy)
				require.NoError(t, releaseOther(ctx))
			})
		})
	}
}

func TestAReentryIsAWaitAndNoGrant(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		for _, mu := range []redlatch.Locker{s.Locks.Mutex("a"), s.Locks.FairMutex("a")} {
			h, err := mu.Lock(t.Context())
			require.NoError(t, err)
			s.Forget()
			inner, err := mu.Lock(h.Context())
			require.NoError(t, err)
			require.Equal(t, event.Reentry, s.Take(t, event.WaitEnded).Source)
			require.NoError(t, h.Unlock(t.Context()))
			require.Empty(t, s.Of(), "the lock is still held")
			require.NoError(t, inner.Unlock(t.Context()))
			s.Take(t, event.Released)
		}
	})
}

func TestALocalHandoffIsTheSourceOfAHold(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		first := s.Lock(t.Context())
		waits := make(chan *lock.Hold)
		go func() { waits <- s.Lock(t.Context()) }()
		synctest.Wait()
		s.Unlock(first)
		second := <-waits
		e := s.Of(event.WaitEnded)[1]
		require.Equal(t, event.Handoff, e.Source)
		require.Equal(t, second.ID(), e.ID)
		s.Unlock(second)
		ended := s.Of(event.Released)
		require.Len(t, ended, 2)
		require.Equal(t, first.ID(), ended[0].ID)
		require.Equal(t, second.ID(), ended[1].ID)

		// With the local lock alone, the hold comes from Redis.
		busy, err := s.Other.Mutex(s.Name).Lock(t.Context())
		require.NoError(t, err)
		short, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { _, err := s.Mutex.Lock(short); gone <- err }()
		synctest.Wait()
		go func() { waits <- s.Lock(t.Context()) }()
		synctest.Wait()
		cancel()
		require.Error(t, <-gone)
		s.Forget()
		require.NoError(t, busy.Unlock(t.Context()))
		third := <-waits
		require.Equal(t, event.Redis, s.Take(t, event.WaitEnded).Source)
		s.Unlock(third)
	})
}

func TestTheResultOfAWaitIsThatOfItsError(t *testing.T) {
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 1500*time.Millisecond)
	}
	for name, c := range map[string]struct {
		result event.Result
		play   func(t *testing.T, s *stage.Observed, kind string) error
	}{
		"the program cancels while another has it": {event.Cancelled, func(t *testing.T, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
			return err
		}},
		"the deadline comes, for a cause that is a cancel": {event.Busy, func(t *testing.T, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, fmt.Errorf("upstream: %w", context.Canceled))
			defer cancel()
			_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
			return err
		}},
		"the deadline comes while another has it": {event.Busy, func(t *testing.T, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
			return err
		}},
		"redis is down": {event.Unavailable, func(t *testing.T, s *stage.Observed, kind string) error {
			s.Proxy.Down()
			defer s.Proxy.Up()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err := stage.Kinds[kind].Take(s.Locks, ctx)
			return err
		}},
		"redis is silent": {event.Unavailable, func(t *testing.T, s *stage.Observed, kind string) error {
			s.Proxy.BlackHole(redistest.CommandTraffic)
			defer s.Proxy.Heal()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err := stage.Kinds[kind].Take(s.Locks, ctx)
			return err
		}},
		"redis refuses": {event.Refused, func(t *testing.T, s *stage.Observed, kind string) error {
			s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Action: redistest.Refuse("NOPERM this user has no permissions")})
			_, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			return err
		}},
		"the client closes": {event.Closed, func(t *testing.T, s *stage.Observed, kind string) error {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			failed := make(chan error)
			go func() { _, _, err := stage.Kinds[kind].Take(s.Locks, t.Context()); failed <- err }()
			synctest.Wait()
			require.NoError(t, s.Locks.Close(t.Context()))
			require.NoError(t, release(t.Context()))
			return <-failed
		}},
	} {
		for primitive, kind := range stage.Primitives {
			t.Run(name+", "+kind, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					began := time.Now()
					err := c.play(t, s, kind)
					require.Error(t, err)
					took := time.Since(began)
					e := s.Take(t, event.WaitEnded)
					require.Equal(t, c.result, e.Result)
					require.Equal(t, primitive, e.Primitive)
					require.Equal(t, err, e.Err)
					require.Equal(t, took, e.Duration)
					require.Zero(t, e.Source)
					require.Empty(t, e.ID)
				})
			})
		}
	}
}

func TestTheResultOfAWaitAfterALoss(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h := s.Lock(t.Context())
		require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
		<-h.Lost()
		s.Forget()
		_, err := s.Mutex.Lock(context.WithoutCancel(h.Context()))
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Equal(t, event.AfterLoss, s.Take(t, event.WaitEnded).Result)
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
		require.Empty(t, s.Of(event.Released, event.Lost), "it was observed before")
	})
}

func TestTheLimitOfASemaphoreRefusesAWait(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		p, err := s.Locks.Semaphore("pool", 3).Acquire(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, 2, s.Take(t, event.WaitEnded).Units)
		require.NoError(t, p.Release(t.Context()))
		require.Equal(t, 2, s.Take(t, event.Released).Units)
		_, err = s.Locks.Semaphore("pool", 4).TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.Equal(t, event.Refused, s.Take(t, event.WaitEnded).Result)
		_, err = s.Locks.Semaphore("pool", 0).TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.Empty(t, s.Of(), "nothing was asked")
	})
}

func TestAWaiterThatAnOperatorRemovesIsBusy(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		for kind, remove := range map[string]func() error{
			"fair": func() error {
				all, _, err := s.Other.FairMutex("orders").Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				_, err = s.Other.FairMutex("orders").RemoveWaiter(t.Context(), all[0].ID)
				return err
			},
			"semaphore": func() error {
				all, _, err := s.Other.Semaphore("orders", 1).Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				_, err = s.Other.Semaphore("orders", 1).RemoveWaiter(t.Context(), all[0].ID)
				return err
			},
		} {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			failed := make(chan error)
			go func() { _, _, err := stage.Kinds[kind].Take(s.Locks, t.Context()); failed <- err }()
			synctest.Wait()
			require.NoError(t, remove())
			require.ErrorIs(t, <-failed, redlatch.ErrRemoved)
			require.Equal(t, event.Busy, s.Take(t, event.WaitEnded).Result)
			require.NoError(t, release(t.Context()))
		}
	})
}

func TestTooFewReplicasEndAWait(t *testing.T) {
	for primitive, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				s.OnReplicas(0, 0, stage.Replicas(0))
				_, _, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.ErrorIs(t, err, redlatch.ErrNotReplicated)
				require.Equal(t, primitive == event.Semaphore, strings.Contains(err.Error(), "semaphore"), err)
				e := s.Take(t, event.WaitEnded)
				require.Equal(t, event.NotReplicated, e.Result)
				require.Equal(t, primitive, e.Primitive)
				require.Empty(t, s.Of(event.Released, event.Lost), "no call returned it")
			}, redlatch.WithReplicas(1, time.Second))
		})
	}
}

// A context of the program panics, or ends the goroutine. The wait still has an end.
func TestAWaitThatDoesNotReturnIsAborted(t *testing.T) {
	for way, act := range map[string]func(){"panics": func() { panic("a context of the user") }, "ends its goroutine": runtime.Goexit} {
		for primitive, kind := range stage.Primitives {
			t.Run(kind+" "+way, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					stage.InGoroutine(func() {
						defer func() { _ = recover() }()
						_, _, _ = stage.Kinds[kind].Take(s.Locks, stage.HostileContext{Context: t.Context(), Method: "Deadline", Act: act})
					})
					e := s.Take(t, event.WaitEnded)
					require.Equal(t, event.Aborted, e.Result)
					require.Equal(t, primitive, e.Primitive)
				})
			})
		}
	}
}

func TestALossSaysWhy(t *testing.T) {
	const lease = 3 * time.Second
	for name, c := range map[string]struct {
		result  event.Result
		options []redlatch.Option
		do      func(t *testing.T, s *stage.Observed)
	}{
		"removed":         {event.Gone, nil, func(t *testing.T, s *stage.Observed) { require.NoError(t, s.Direct.FlushAll(t.Context()).Err()) }},
		"not confirmed":   {event.Unconfirmed, nil, func(_ *testing.T, s *stage.Observed) { s.Proxy.BlackHole(redistest.CommandTraffic) }},
		"maximum":         {event.MaxHold, []redlatch.Option{redlatch.WithMaxHold(time.Second)}, func(*testing.T, *stage.Observed) {}},
		"without renewal": {event.NotRenewed, []redlatch.Option{redlatch.WithoutRenewal()}, func(*testing.T, *stage.Observed) {}},
	} {
		for primitive, kind := range stage.Primitives {
			t.Run(name+", "+kind, func(t *testing.T) {
				stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
					h, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
					began := time.Now()
					c.do(t, s)
					<-h.Lost()
					took := time.Since(began)
					synctest.Wait()
					e := s.Take(t, event.Lost)
					require.Equal(t, c.result, e.Result)
					require.Equal(t, primitive, e.Primitive)
					require.Equal(t, took, e.Duration)
					require.Equal(t, h.(interface{ ID() string }).ID(), e.ID)
					s.Proxy.Heal()
					require.ErrorIs(t, release(t.Context()), redlatch.ErrLost)
				}, append(c.options, redlatch.WithLease(lease))...)
			})
		}
	}
}

// A release finds out that the lock is gone, before any renewal does.
func TestALossThatAReleaseFindsIsNoRelease(t *testing.T) {
	for kind := range stage.Kinds {
		stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
			require.ErrorIs(t, release(t.Context()), redlatch.ErrLost)
			require.Empty(t, s.Of(event.Released))
			require.Equal(t, event.Gone, s.Take(t, event.Lost).Result)
		})
	}
}

// If Redis does not confirm a release, the hold has ended all the same. The background goes on, and
// what it releases is no late grant.
func TestAReleaseThatIsNotConfirmedSaysWhy(t *testing.T) {
	for kind := range stage.Kinds {
		stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			s.Proxy.Down()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = release(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, err, s.Take(t, event.Released).Err)
			s.Proxy.Up()
			time.Sleep(5 * time.Second)
			require.NoError(t, release(t.Context()))
			require.Empty(t, s.Of(event.Released, event.Lost, event.LateGrant))
		})
	}
}

func TestAPlaceInAQueueIsObserved(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		for primitive, kind := range map[event.Primitive]string{event.FairMutex: "fair", event.Semaphore: "semaphore"} {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
			ahead := make(chan error)
			go func() { _, _, err := stage.Kinds[kind].Take(s.Other, bounded); ahead <- err }()
			synctest.Wait()
			mine := make(chan func(context.Context) error)
			go func() {
				_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
				require.NoError(t, err)
				mine <- release
			}()
			synctest.Wait()
			require.Equal(t, event.Event{Kind: event.Queued, Primitive: primitive, Name: "orders", Position: 2, Length: 2}, s.Take(t, event.Queued))
			cancel()
			require.Error(t, <-ahead)
			time.Sleep(10 * time.Second)
			require.Equal(t, 1, s.Take(t, event.Queued).Position)
			require.NoError(t, release(t.Context()))
			require.NoError(t, (<-mine)(t.Context()))
		}
	})
}

// Waits at the same time, for the same lock and with the same context, differ in their numbers.
func TestTheEventsOfAWaitHaveItsNumber(t *testing.T) {
	for primitive, kind := range stage.Primitives {
		t.Run(kind, func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
				require.NoError(t, err)
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() {
						_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
						require.NoError(t, err)
						require.NoError(t, release(t.Context()))
					})
				}
				time.Sleep(20 * time.Second)
				require.NoError(t, release(t.Context()))
				group.Wait()
				stage.AwaitEvents()
				events := map[uint64]map[event.Kind]int{}
				for i, e := range s.Events {
					if events[s.Waits[i]] == nil {
						events[s.Waits[i]] = map[event.Kind]int{}
					}
					events[s.Waits[i]][e.Kind]++
				}
				require.Len(t, events, 3, "0 is for events of no wait")
				require.Equal(t, 2, events[0][event.Released])
				queued := 0
				for wait := range uint64(2) {
					require.Equal(t, 1, events[wait+1][event.WaitBegan])
					require.Equal(t, 1, events[wait+1][event.WaitEnded])
					queued += events[wait+1][event.Queued]
				}
				require.Equal(t, primitive != event.Mutex, queued > 1)
				require.Zero(t, events[0][event.Queued]+events[0][event.Woken])
				require.Positive(t, events[1][event.Woken]+events[2][event.Woken])
			})
		})
	}
}

func TestAWakeUpSaysItsCause(t *testing.T) {
	for kind := range stage.Kinds {
		t.Run(kind, func(t *testing.T) {
			const lease = 8 * time.Second
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				woken := func() (causes []event.Result) {
					synctest.Wait()
					for _, e := range s.Of(event.Woken) {
						require.Equal(t, kind, stage.Primitives[e.Primitive])
						require.Equal(t, "orders", e.Name)
						causes = append(causes, e.Result)
					}
					s.Forget()
					return causes
				}
				var never func(context.Context) error
				t.Cleanup(func() { runtime.KeepAlive(never) })
				short := stage.LocksOn(t, s.Direct, redlatch.WithLease(lease), redlatch.WithoutRenewal())
				for _, c := range []struct {
					end  func(release func(context.Context) error)
					last event.Result
				}{
					{func(release func(context.Context) error) { require.NoError(t, release(t.Context())) }, event.Message},
					{func(release func(context.Context) error) { never = release }, event.LeaseEnd},
				} {
					_, release, err := stage.Kinds[kind].Take(short, t.Context())
					require.NoError(t, err)
					mine := make(chan func(context.Context) error)
					go func() {
						_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
						require.NoError(t, err)
						mine <- release
					}()
					synctest.Wait()
					for _, cause := range woken() { // perhaps when the last subscription is confirmed
						require.Equal(t, event.Message, cause)
					}
					time.Sleep(1500 * time.Millisecond)
					require.Empty(t, woken(), "it sleeps")
					c.end(release)
					releaseMine := <-mine
					causes := woken()
					require.NotEmpty(t, causes)
					require.Equal(t, c.last, causes[len(causes)-1])
					for _, cause := range causes[:len(causes)-1] {
						require.Equal(t, event.Poll, cause)
						require.Equal(t, "mutex", kind, "only a plain waiter polls")
					}
					require.NoError(t, releaseMine(t.Context()))
				}
			}, redlatch.WithLease(time.Hour), redlatch.WithHeartbeat(time.Hour)) // no heartbeat in the millisecond after the end of a lease
		})
	}
}

// A waiter in a queue asks by itself if Redis does not answer its heartbeats.
func TestAWaiterWithoutHeartbeatsPolls(t *testing.T) {
	for kind, script := range map[string]string{"fair": "fair/beat", "semaphore": "semaphore/beat"} {
		stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
			_, release, err := stage.Kinds[kind].Take(s.Other, t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			failed := make(chan error)
			go func() { _, _, err := stage.Kinds[kind].Take(s.Locks, ctx); failed <- err }()
			synctest.Wait()
			require.Empty(t, s.Of(event.Woken), "it asks first because it may have missed a message")
			s.Proxy.Inject(redistest.Rule{Match: stage.Runs(script), Action: redistest.Swallow()})
			require.Error(t, <-failed)
			synctest.Wait()
			require.Equal(t, event.Poll, s.Take(t, event.Woken).Result)
			s.Proxy.Heal()
			require.NoError(t, release(t.Context()))
		})
	}
}

// The leases of all renewals of a time are counted, whichever commands they shared.
func TestRenewalsAreCounted(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		renewed := func(during time.Duration) map[string]int {
			s.Forget()
			time.Sleep(during)
			counts := map[string]int{}
			for _, e := range s.Of(event.Renewed) {
				counts[e.Primitive.String()+" "+e.Result.String()] += e.Count
				if e.Result == event.Failed {
					require.ErrorContains(t, e.Err, "NOPERM")
				} else {
					require.NoError(t, e.Err)
				}
			}
			return counts
		}
		for _, name := range []string{"a", "b", "c"} {
			h, err := s.Locks.Mutex(name).Lock(t.Context())
			require.NoError(t, err)
			stage.KeepHandle(t, h)
		}
		permit, err := s.Locks.Semaphore("pool", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"unknown extended": 3, "semaphore extended": 1}, renewed(10*time.Second))
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, s.Direct.Del(t.Context(), "b").Err())
		counts := renewed(11 * time.Second)
		require.Equal(t, 1, counts["unknown gone"])
		require.GreaterOrEqual(t, counts["unknown extended"], 2)
		s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/renew"), Action: redistest.Refuse("NOPERM no permission")})
		require.Positive(t, renewed(11 * time.Second)["unknown failed"])
	})
}

// A hold without renewal is only looked at. Heartbeats of waiters are no renewals.
func TestALookAtALeaseIsNoRenewal(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h, err := s.Locks.FairMutex("a").Lock(t.Context())
		require.NoError(t, err)
		waits := make(chan error)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		go func() { _, err := s.Locks.FairMutex("a").Lock(ctx); waits <- err }()
		require.Error(t, <-waits)
		all := s.Of(event.Renewed)
		require.NotEmpty(t, all)
		for _, e := range all {
			require.Equal(t, event.Checked, e.Result)
		}
		require.NoError(t, h.Unlock(t.Context()))
	}, redlatch.WithoutRenewal())
}

func TestACommandThatIsSentAgainIsARetry(t *testing.T) {
	for primitive, kind := range stage.Primitives {
		stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context()) // learns the server's clock, which is no retry
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
			synctest.Wait()
			require.Empty(t, s.Of(event.Retried))
			s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Times: 2, Action: redistest.Refuse("LOADING Redis is loading")})
			_, release, err = stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			synctest.Wait()
			all := s.Of(event.Retried)
			require.Len(t, all, 2)
			for _, e := range all {
				require.Equal(t, primitive, e.Primitive)
				require.Equal(t, "orders", e.Name)
				require.ErrorContains(t, e.Err, "LOADING")
				require.Zero(t, e.Duration, "the attempt took no time; the pause is not part of it")
			}
			require.NoError(t, release(t.Context()))
		})
	}
}

func TestAGrantAfterItsCallerHasLeftIsObserved(t *testing.T) {
	for primitive, kind := range stage.Primitives {
		stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
			s.Proxy.Inject(redistest.Rule{Match: stage.Runs(stage.Kinds[kind].Ask), Times: 1, Action: redistest.DelayReply(time.Second)})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, _, err = stage.Kinds[kind].Take(s.Locks, ctx)
			require.Error(t, err)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			e := s.Take(t, event.LateGrant)
			require.Equal(t, primitive, e.Primitive)
			require.NotEmpty(t, e.ID)
		})
	}
}

func TestALostConnectionForMessagesIsObserved(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h, err := s.Other.Mutex(s.Name).Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waits := make(chan error)
		go func() { _, err := s.Mutex.Lock(ctx); waits <- err }()
		synctest.Wait()
		require.Empty(t, s.Of(event.Disconnected))
		s.Proxy.KillAll()
		synctest.Wait()
		require.Error(t, s.Take(t, event.Disconnected).Err)
		require.Error(t, <-waits)
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, s.Locks.Close(t.Context()))
		synctest.Wait()
		require.Empty(t, s.Of(event.Disconnected), "closing is no trouble")
	})
}

func TestADroppedHoldIsObserved(t *testing.T) {
	t.Parallel()
	server, r := redistest.Shared(t), &stage.Recorder{}
	locks := stage.LocksOn(t, server.Client(t), redlatch.WithObserver(r), redlatch.WithLease(2*time.Second))
	id, _ := stage.Drop(t, t.Context(), locks.Mutex(redistest.Name(t)))
	require.Eventually(t, func() bool { runtime.GC(); return len(r.Of(event.Lost)) == 1 }, stage.Guard, 10*time.Millisecond)
	require.Equal(t, id, r.Of(event.Leaked)[0].ID)
	require.Equal(t, event.Mutex, r.Of(event.Leaked)[0].Primitive)
	require.Equal(t, event.NotRenewed, r.Of(event.Lost)[0].Result)
}

// Whatever happens, each wait and each grant has one end. Calls give up at any moment, locks go on
// inside the client, Redis loses data, and the client closes.
func TestWaitsAndGrantsAreCountedUpAndDown(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
				var work sync.WaitGroup
				for i := range uint64(12) {
					random := rand.New(rand.NewPCG(seed, i))
					work.Go(func() {
						for range 15 {
							kind := []string{"mutex", "mutex", "fair", "semaphore"}[random.IntN(4)]
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(400))*time.Millisecond)
							_, release, err := stage.Kinds[kind].Take(s.Locks, ctx)
							cancel()
							if err != nil {
								continue
							}
							if random.IntN(20) == 0 {
								_ = s.Direct.FlushAll(context.Background()).Err()
							}
							time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
							t.Cleanup(func() { runtime.KeepAlive(release) })
							if random.IntN(10) > 0 { // else until the client closes
								_ = release(context.Background())
							}
						}
					})
				}
				if seed%2 == 1 {
					time.Sleep(3 * time.Second)
					require.NoError(t, s.Locks.Close(t.Context()))
				}
				work.Wait()
				require.NotEmpty(t, s.Of(event.Released))
			}, redlatch.WithLease(time.Second))
		})
	}
}

func TestAnObserverThatPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, r := &stage.Logbook{}, &stage.Recorder{}
		s := stage.InBubble(t, redlatch.WithLogger(slog.New(log)), redlatch.WithLease(3*time.Second),
			redlatch.WithObserver(event.Func(func(context.Context, event.Event) { panic("out of metrics") })), redlatch.WithObserver(r))
		for kind := range stage.Kinds {
			_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
			require.NoError(t, err)
			time.Sleep(10 * time.Second) // renewals
			require.NoError(t, release(t.Context()))
		}
		h := s.Lock(t.Context())
		require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
		<-h.Lost()
		require.NoError(t, s.Locks.Close(t.Context()))
		panics := slices.DeleteFunc(log.Lines(), func(line string) bool { return !strings.Contains(line, "an observer panicked") })
		require.Len(t, panics, 1)
		require.Contains(t, panics[0], "out of metrics")
		require.Len(t, r.Of(event.Lost), 1, "the next observer is notified")
	})
}

// An observer blocks for ever, from its first event of one kind on. No call waits for it, and no
// loss or renewal does.
func TestAnObserverThatBlocksDelaysNothing(t *testing.T) {
	for kind := event.WaitBegan; kind <= event.Disconnected; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocked := make(chan struct{})
				defer close(blocked)
				s := stage.InBubble(t, redlatch.WithLease(3*time.Second),
					redlatch.WithObserver(event.Func(func(_ context.Context, e event.Event) {
						if e.Kind == kind {
							<-blocked
						}
					})))
				held := s.Lock(t.Context())
				busy, err := s.Locks.FairMutex("queue").Lock(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = s.Locks.FairMutex("queue").Lock(ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				waits := make(chan *lock.Hold)
				go func() { waits <- s.Lock(context.Background()) }()
				s.Proxy.KillAll()
				time.Sleep(30 * time.Second) // many leases
				require.True(t, held.Trusted())
				began := time.Now()
				s.Unlock(held)
				next := <-waits
				require.Zero(t, time.Since(began), "the handoff waits for nobody")
				require.NoError(t, s.Direct.Del(t.Context(), s.Name).Err())
				<-next.Lost()
				require.ErrorIs(t, next.Unlock(t.Context()), redlatch.ErrLost)
				require.NoError(t, busy.Unlock(t.Context()))
				for kind := range stage.Kinds {
					began := time.Now()
					_, release, err := stage.Kinds[kind].Take(s.Locks, t.Context())
					require.NoError(t, err)
					require.NoError(t, release(t.Context()))
					require.Zero(t, time.Since(began), kind)
				}
				_ = s.Lock(t.Context())
				began = time.Now()
				require.NoError(t, s.Locks.Close(t.Context()))
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			})
		})
	}
}

// The observers are too slow, so that events are dropped. They are notified of how many, and of
// what they would have counted. After that they get all events again.
func TestEventsThatNobodyTakesAreDropped(t *testing.T) {
	var blocked chan struct{}
	log := &stage.Logbook{}
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		blocked = make(chan struct{})
		var holds []*lock.Hold
		for i := range 600 {
			h, err := s.Locks.Mutex(fmt.Sprint(i)).Lock(t.Context())
			require.NoError(t, err)
			holds = append(holds, h)
		}
		permit, err := s.Locks.Semaphore("pool", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		waits := make(chan *lock.Hold)
		go func() {
			h, err := s.Locks.Mutex("0").Lock(context.Background())
			require.NoError(t, err)
			waits <- h
		}()
		synctest.Wait()
		for _, h := range holds[1:] {
			require.NoError(t, h.Unlock(t.Context()))
		}
		require.Empty(t, s.Of(event.Dropped))
		close(blocked)
		dropped := s.Of(event.Dropped)
		require.Len(t, dropped, 2)
		require.Equal(t, event.Event{Kind: event.Dropped, Primitive: event.Semaphore, Count: 2, Held: 1}, dropped[1])
		mutexes := dropped[0]
		require.Equal(t, event.Event{Kind: event.Dropped, Primitive: event.Mutex, Count: mutexes.Count, Waiting: 1, Held: 1}, mutexes)
		require.Equal(t, 600*2+1+599, mutexes.Count+len(s.Of())-len(dropped), "each event is delivered or counted")
		waiting, held := s.Balance()
		require.Equal(t, 1, waiting)
		require.Equal(t, 2, held)
		require.NoError(t, holds[0].Unlock(t.Context()))
		require.NoError(t, (<-waits).Unlock(t.Context()))
		require.NoError(t, permit.Release(t.Context()))
		logged := slices.DeleteFunc(log.Lines(), func(line string) bool { return !strings.Contains(line, "an observer is too slow") })
		require.Len(t, logged, 1)
	}, redlatch.WithLogger(slog.New(log)), redlatch.WithObserver(event.Func(func(context.Context, event.Event) { <-blocked })))
}

func TestANilObserverIsRefused(t *testing.T) {
	_, err := redlatch.New(stage.Unused(t), redlatch.WithObserver(nil))
	stage.RequireBad(t, err, "observer", nil)
}

func TestAnObserverThatEndsItsGoroutineHidesNoEvent(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		r := &stage.Recorder{Settle: stage.AwaitEvents}
		exits := event.Func(func(context.Context, event.Event) { runtime.Goexit() })
		locks := stage.LocksOn(t, s.Direct, redlatch.WithObserver(exits), redlatch.WithObserver(r))
		h, err := locks.Mutex("orders").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		require.Len(t, r.Of(), 3)
	})
}

func TestAReleaseThatCloseCannotConfirmSaysWhy(t *testing.T) {
	stage.InObservedBubble(t, func(t *testing.T, s *stage.Observed) {
		h := s.Lock(t.Context())
		s.Proxy.Down()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, s.Locks.Close(ctx))
		require.Error(t, s.Take(t, event.Released).Err)
		runtime.KeepAlive(h)
	})
}
