package redlatch_test

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
	"github.com/redlatch/redlatch/lock"
)

// The goal of this file: an observer is notified of each fact once, with its numbers, and can count waits
// and holds up and down. It harms nothing, whether it panics or blocks.

// recorder is an observer that keeps the events.
type recorder struct {
	mutex  sync.Mutex
	events []event.Event
	values []any // of the contexts, for recorderKey
	waits  []uint64
	seen   int    // the test has looked at so many events
	settle func() // returns when the observers have got all events; nil if the test waits for that itself
}

type recorderKey struct{}

func (r *recorder) Observe(ctx context.Context, e event.Event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if e.Time.IsZero() || e.Time.After(time.Now()) || ctx.Err() != nil || e.Client == "" || e.ID != "" && !strings.HasPrefix(e.ID, e.Client+":") {
		panic(fmt.Sprint("an event without a time or its client, or with a context that ended: ", e))
	}
	r.waits = append(r.waits, e.Wait)
	e.Time, e.Client, e.Wait = time.Time{}, "", 0 // so that tests compare the rest
	r.events, r.values = append(r.events, e), append(r.values, ctx.Value(recorderKey{}))
}

// of returns the events of these kinds since the last call of forget, or all of them if there are no
// kinds.
func (r *recorder) of(kinds ...event.Kind) (some []event.Event) {
	if r.settle != nil {
		r.settle()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, e := range r.events[r.seen:] {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			some = append(some, e)
		}
	}
	return some
}

func (r *recorder) forget() {
	if r.settle != nil {
		r.settle()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen = len(r.events)
}

// take returns the only event of a kind, and forgets all events so far.
func (r *recorder) take(t testing.TB, kind event.Kind) event.Event {
	t.Helper()
	all := r.of(kind)
	require.Len(t, all, 1, "%v: %v", kind, r.of())
	r.forget()
	return all[0]
}

// balance counts as the documentation of package event says.
func (r *recorder) balance() (waiting, held int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var counts [event.Semaphore + 1]struct{ waiting, held int }
	for _, e := range r.events {
		c := &counts[e.Primitive]
		switch {
		case e.Kind == event.WaitBegan:
			c.waiting++
		case e.Kind == event.WaitEnded:
			c.waiting--
			if e.Result == event.Acquired && e.Source != event.Reentry {
				c.held++
			}
		case e.Kind == event.Released, e.Kind == event.Lost:
			c.held--
		case e.Kind == event.Dropped:
			c.waiting, c.held = e.Waiting, e.Held
		}
	}
	for _, c := range counts {
		waiting, held = waiting+c.waiting, held+c.held
	}
	return waiting, held
}

// observed is a scene with a recorder, and another client that nobody observes.
type observed struct {
	*scene
	*recorder
	other *redlatch.Client
}

// awaitEvents waits until the observers have got all events of a bubble.
func awaitEvents() {
	const late = 10 * time.Millisecond // at most
	synctest.Wait()
	time.Sleep(late)
	synctest.Wait()
}

func inObservedBubble(t *testing.T, play func(t *testing.T, s *observed), options ...redlatch.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{settle: awaitEvents}
		s := inBubble(t, append([]redlatch.Option{redlatch.WithObserver(r)}, options...)...)
		play(t, &observed{s, r, locksOn(t, s.direct)})
		require.NoError(t, s.locks.Close(t.Context()))
		synctest.Wait()
		waiting, held := r.balance()
		require.Zero(t, waiting, "waits without an end")
		require.Zero(t, held, "grants without an end")
	})
}

// primitives are the primitives as their events name them.
var primitives = map[event.Primitive]string{event.Mutex: "mutex", event.FairMutex: "fair", event.Semaphore: "semaphore"}

// tries acquire one kind of primitive each, without waiting.
var tries = map[event.Primitive]func(c *redlatch.Client, ctx context.Context) error{
	event.Mutex: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.Mutex("orders").TryLock(ctx)
		return err
	},
	event.FairMutex: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.FairMutex("orders").TryLock(ctx)
		return err
	},
	event.Semaphore: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.Semaphore("orders", 1).TryAcquire(ctx, 1)
		return err
	},
}

func TestAFreeLockHasThreeEvents(t *testing.T) {
	for primitive, kind := range primitives {
		t.Run(kind, func(t *testing.T) {
			inObservedBubble(t, func(t *testing.T, s *observed) {
				ctx := context.WithValue(t.Context(), recorderKey{}, "the caller's")
				h, release, err := kinds[kind].take(s.locks, ctx)
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
				}, s.of())
				require.Equal(t, []any{"the caller's", "the caller's", "the caller's"}, s.values)
				s.forget()

				busy, releaseOther, err := kinds[kind].take(s.other, ctx)
				require.NoError(t, err)
				err = tries[primitive](s.locks, ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.Equal(t, []event.Event{
					{Kind: event.WaitBegan, Primitive: primitive, Name: "orders", Units: 1, Try: true},
					{Kind: event.WaitEnded, Primitive: primitive, Name: "orders", Units: 1, Try: true, Result: event.Busy, Err: err},
				}, s.of())
				runtime.KeepAlive(busy)
				require.NoError(t, releaseOther(ctx))
			})
		})
	}
}

func TestAReentryIsAWaitAndNoGrant(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		for _, mu := range []redlatch.Locker{s.locks.Mutex("a"), s.locks.FairMutex("a")} {
			h, err := mu.Lock(t.Context())
			require.NoError(t, err)
			s.forget()
			inner, err := mu.Lock(h.Context())
			require.NoError(t, err)
			require.Equal(t, event.Reentry, s.take(t, event.WaitEnded).Source)
			require.NoError(t, h.Unlock(t.Context()))
			require.Empty(t, s.of(), "the lock is still held")
			require.NoError(t, inner.Unlock(t.Context()))
			s.take(t, event.Released)
		}
	})
}

func TestALocalHandoffIsTheSourceOfAHold(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		first := s.lock(t.Context())
		waits := make(chan *lock.Hold)
		go func() { waits <- s.lock(t.Context()) }()
		synctest.Wait()
		s.unlock(first)
		second := <-waits
		e := s.of(event.WaitEnded)[1]
		require.Equal(t, event.Handoff, e.Source)
		require.Equal(t, second.ID(), e.ID)
		s.unlock(second)
		ended := s.of(event.Released)
		require.Len(t, ended, 2)
		require.Equal(t, first.ID(), ended[0].ID)
		require.Equal(t, second.ID(), ended[1].ID)

		// With the local lock alone, the hold comes from Redis.
		busy, err := s.other.Mutex(s.name).Lock(t.Context())
		require.NoError(t, err)
		short, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { _, err := s.mu.Lock(short); gone <- err }()
		synctest.Wait()
		go func() { waits <- s.lock(t.Context()) }()
		synctest.Wait()
		cancel()
		require.Error(t, <-gone)
		s.forget()
		require.NoError(t, busy.Unlock(t.Context()))
		third := <-waits
		require.Equal(t, event.Redis, s.take(t, event.WaitEnded).Source)
		s.unlock(third)
	})
}

func TestTheResultOfAWaitIsThatOfItsError(t *testing.T) {
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 1500*time.Millisecond)
	}
	for name, c := range map[string]struct {
		result event.Result
		play   func(t *testing.T, s *observed, kind string) error
	}{
		"the program cancels while another has it": {event.Cancelled, func(t *testing.T, s *observed, kind string) error {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, _, err = kinds[kind].take(s.locks, ctx)
			return err
		}},
		"the deadline comes, for a cause that is a cancel": {event.Busy, func(t *testing.T, s *observed, kind string) error {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, fmt.Errorf("upstream: %w", context.Canceled))
			defer cancel()
			_, _, err = kinds[kind].take(s.locks, ctx)
			return err
		}},
		"the deadline comes while another has it": {event.Busy, func(t *testing.T, s *observed, kind string) error {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, release(t.Context())) }()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err = kinds[kind].take(s.locks, ctx)
			return err
		}},
		"redis is down": {event.Unavailable, func(t *testing.T, s *observed, kind string) error {
			s.proxy.Down()
			defer s.proxy.Up()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err := kinds[kind].take(s.locks, ctx)
			return err
		}},
		"redis is silent": {event.Unavailable, func(t *testing.T, s *observed, kind string) error {
			s.proxy.BlackHole(redistest.CommandTraffic)
			defer s.proxy.Heal()
			ctx, cancel := short(t.Context())
			defer cancel()
			_, _, err := kinds[kind].take(s.locks, ctx)
			return err
		}},
		"redis refuses": {event.Refused, func(t *testing.T, s *observed, kind string) error {
			s.proxy.Inject(redistest.Rule{Match: runs(kinds[kind].ask), Action: redistest.Refuse("NOPERM this user has no permissions")})
			_, _, err := kinds[kind].take(s.locks, t.Context())
			return err
		}},
		"the client closes": {event.Closed, func(t *testing.T, s *observed, kind string) error {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			failed := make(chan error)
			go func() { _, _, err := kinds[kind].take(s.locks, t.Context()); failed <- err }()
			synctest.Wait()
			require.NoError(t, s.locks.Close(t.Context()))
			require.NoError(t, release(t.Context()))
			return <-failed
		}},
	} {
		for primitive, kind := range primitives {
			t.Run(name+", "+kind, func(t *testing.T) {
				inObservedBubble(t, func(t *testing.T, s *observed) {
					began := time.Now()
					err := c.play(t, s, kind)
					require.Error(t, err)
					took := time.Since(began)
					e := s.take(t, event.WaitEnded)
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
	inObservedBubble(t, func(t *testing.T, s *observed) {
		h := s.lock(t.Context())
		require.NoError(t, s.direct.FlushAll(t.Context()).Err())
		<-h.Lost()
		s.forget()
		_, err := s.mu.Lock(context.WithoutCancel(h.Context()))
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Equal(t, event.AfterLoss, s.take(t, event.WaitEnded).Result)
		require.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrLost)
		require.Empty(t, s.of(event.Released, event.Lost), "it was observed before")
	})
}

func TestTheLimitOfASemaphoreRefusesAWait(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		p, err := s.locks.Semaphore("pool", 3).Acquire(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, 2, s.take(t, event.WaitEnded).Units)
		require.NoError(t, p.Release(t.Context()))
		require.Equal(t, 2, s.take(t, event.Released).Units)
		_, err = s.locks.Semaphore("pool", 4).TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.Equal(t, event.Refused, s.take(t, event.WaitEnded).Result)
		_, err = s.locks.Semaphore("pool", 0).TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, redlatch.ErrConfig)
		require.Empty(t, s.of(), "nothing was asked")
	})
}

func TestAWaiterThatAnOperatorRemovesIsBusy(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		for kind, remove := range map[string]func() error{
			"fair": func() error {
				all, _, err := s.other.FairMutex("orders").Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				_, err = s.other.FairMutex("orders").RemoveWaiter(t.Context(), all[0].ID)
				return err
			},
			"semaphore": func() error {
				all, _, err := s.other.Semaphore("orders", 1).Queue(t.Context(), 0, 1)
				require.NoError(t, err)
				_, err = s.other.Semaphore("orders", 1).RemoveWaiter(t.Context(), all[0].ID)
				return err
			},
		} {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			failed := make(chan error)
			go func() { _, _, err := kinds[kind].take(s.locks, t.Context()); failed <- err }()
			synctest.Wait()
			require.NoError(t, remove())
			require.ErrorIs(t, <-failed, redlatch.ErrRemoved)
			require.Equal(t, event.Busy, s.take(t, event.WaitEnded).Result)
			require.NoError(t, release(t.Context()))
		}
	})
}

func TestTooFewReplicasEndAWait(t *testing.T) {
	for primitive, kind := range primitives {
		t.Run(kind, func(t *testing.T) {
			inObservedBubble(t, func(t *testing.T, s *observed) {
				s.onReplicas(0, 0, replicas(0))
				_, _, err := kinds[kind].take(s.locks, t.Context())
				require.ErrorIs(t, err, redlatch.ErrNotReplicated)
				require.Equal(t, primitive == event.Semaphore, strings.Contains(err.Error(), "semaphore"), err)
				e := s.take(t, event.WaitEnded)
				require.Equal(t, event.NotReplicated, e.Result)
				require.Equal(t, primitive, e.Primitive)
				require.Empty(t, s.of(event.Released, event.Lost), "no call returned it")
			}, redlatch.WithReplicas(1, time.Second))
		})
	}
}

// A context of the program panics, or ends the goroutine. The wait still has an end.
func TestAWaitThatDoesNotReturnIsAborted(t *testing.T) {
	for way, act := range map[string]func(){"panics": func() { panic("a context of the user") }, "ends its goroutine": runtime.Goexit} {
		for primitive, kind := range primitives {
			t.Run(kind+" "+way, func(t *testing.T) {
				inObservedBubble(t, func(t *testing.T, s *observed) {
					inGoroutine(func() {
						defer func() { _ = recover() }()
						_, _, _ = kinds[kind].take(s.locks, hostile{t.Context(), "Deadline", act})
					})
					e := s.take(t, event.WaitEnded)
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
		do      func(t *testing.T, s *observed)
	}{
		"removed":         {event.Gone, nil, func(t *testing.T, s *observed) { require.NoError(t, s.direct.FlushAll(t.Context()).Err()) }},
		"not confirmed":   {event.Unconfirmed, nil, func(_ *testing.T, s *observed) { s.proxy.BlackHole(redistest.CommandTraffic) }},
		"maximum":         {event.MaxHold, []redlatch.Option{redlatch.WithMaxHold(time.Second)}, func(*testing.T, *observed) {}},
		"without renewal": {event.NotRenewed, []redlatch.Option{redlatch.WithoutRenewal()}, func(*testing.T, *observed) {}},
	} {
		for primitive, kind := range primitives {
			t.Run(name+", "+kind, func(t *testing.T) {
				inObservedBubble(t, func(t *testing.T, s *observed) {
					h, release, err := kinds[kind].take(s.locks, t.Context())
					require.NoError(t, err)
					began := time.Now()
					c.do(t, s)
					<-h.Lost()
					took := time.Since(began)
					synctest.Wait()
					e := s.take(t, event.Lost)
					require.Equal(t, c.result, e.Result)
					require.Equal(t, primitive, e.Primitive)
					require.Equal(t, took, e.Duration)
					require.Equal(t, h.(interface{ ID() string }).ID(), e.ID)
					s.proxy.Heal()
					require.ErrorIs(t, release(t.Context()), redlatch.ErrLost)
				}, append(c.options, redlatch.WithLease(lease))...)
			})
		}
	}
}

// A release finds out that the lock is gone, before any renewal does.
func TestALossThatAReleaseFindsIsNoRelease(t *testing.T) {
	for kind := range kinds {
		inObservedBubble(t, func(t *testing.T, s *observed) {
			_, release, err := kinds[kind].take(s.locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, s.direct.FlushAll(t.Context()).Err())
			require.ErrorIs(t, release(t.Context()), redlatch.ErrLost)
			require.Empty(t, s.of(event.Released))
			require.Equal(t, event.Gone, s.take(t, event.Lost).Result)
		})
	}
}

// If Redis does not confirm a release, the hold has ended all the same. The background goes on, and
// what it releases is no late grant.
func TestAReleaseThatIsNotConfirmedSaysWhy(t *testing.T) {
	for kind := range kinds {
		inObservedBubble(t, func(t *testing.T, s *observed) {
			_, release, err := kinds[kind].take(s.locks, t.Context())
			require.NoError(t, err)
			s.proxy.Down()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = release(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, err, s.take(t, event.Released).Err)
			s.proxy.Up()
			time.Sleep(5 * time.Second)
			require.NoError(t, release(t.Context()))
			require.Empty(t, s.of(event.Released, event.Lost, event.LateGrant))
		})
	}
}

func TestAPlaceInAQueueIsObserved(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		for primitive, kind := range map[event.Primitive]string{event.FairMutex: "fair", event.Semaphore: "semaphore"} {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
			ahead := make(chan error)
			go func() { _, _, err := kinds[kind].take(s.other, bounded); ahead <- err }()
			synctest.Wait()
			mine := make(chan func(context.Context) error)
			go func() {
				_, release, err := kinds[kind].take(s.locks, t.Context())
				require.NoError(t, err)
				mine <- release
			}()
			synctest.Wait()
			require.Equal(t, event.Event{Kind: event.Queued, Primitive: primitive, Name: "orders", Position: 2, Length: 2}, s.take(t, event.Queued))
			cancel()
			require.Error(t, <-ahead)
			time.Sleep(10 * time.Second)
			require.Equal(t, 1, s.take(t, event.Queued).Position)
			require.NoError(t, release(t.Context()))
			require.NoError(t, (<-mine)(t.Context()))
		}
	})
}

// Waits at the same time, for the same lock and with the same context, differ in their numbers.
func TestTheEventsOfAWaitHaveItsNumber(t *testing.T) {
	for primitive, kind := range primitives {
		t.Run(kind, func(t *testing.T) {
			inObservedBubble(t, func(t *testing.T, s *observed) {
				_, release, err := kinds[kind].take(s.other, t.Context())
				require.NoError(t, err)
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() {
						_, release, err := kinds[kind].take(s.locks, t.Context())
						require.NoError(t, err)
						require.NoError(t, release(t.Context()))
					})
				}
				time.Sleep(20 * time.Second)
				require.NoError(t, release(t.Context()))
				group.Wait()
				awaitEvents()
				events := map[uint64]map[event.Kind]int{}
				for i, e := range s.events {
					if events[s.waits[i]] == nil {
						events[s.waits[i]] = map[event.Kind]int{}
					}
					events[s.waits[i]][e.Kind]++
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
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			const lease = 8 * time.Second
			inObservedBubble(t, func(t *testing.T, s *observed) {
				woken := func() (causes []event.Result) {
					synctest.Wait()
					for _, e := range s.of(event.Woken) {
						require.Equal(t, kind, primitives[e.Primitive])
						require.Equal(t, "orders", e.Name)
						causes = append(causes, e.Result)
					}
					s.forget()
					return causes
				}
				var never func(context.Context) error
				t.Cleanup(func() { runtime.KeepAlive(never) })
				short := locksOn(t, s.direct, redlatch.WithLease(lease), redlatch.WithoutRenewal())
				for _, c := range []struct {
					end  func(release func(context.Context) error)
					last event.Result
				}{
					{func(release func(context.Context) error) { require.NoError(t, release(t.Context())) }, event.Message},
					{func(release func(context.Context) error) { never = release }, event.LeaseEnd},
				} {
					_, release, err := kinds[kind].take(short, t.Context())
					require.NoError(t, err)
					mine := make(chan func(context.Context) error)
					go func() {
						_, release, err := kinds[kind].take(s.locks, t.Context())
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
		inObservedBubble(t, func(t *testing.T, s *observed) {
			_, release, err := kinds[kind].take(s.other, t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			failed := make(chan error)
			go func() { _, _, err := kinds[kind].take(s.locks, ctx); failed <- err }()
			synctest.Wait()
			require.Empty(t, s.of(event.Woken), "it asks first because it may have missed a message")
			s.proxy.Inject(redistest.Rule{Match: runs(script), Action: redistest.Swallow()})
			require.Error(t, <-failed)
			synctest.Wait()
			require.Equal(t, event.Poll, s.take(t, event.Woken).Result)
			s.proxy.Heal()
			require.NoError(t, release(t.Context()))
		})
	}
}

// The leases of all renewals of a time are counted, whichever commands they shared.
func TestRenewalsAreCounted(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		renewed := func(during time.Duration) map[string]int {
			s.forget()
			time.Sleep(during)
			counts := map[string]int{}
			for _, e := range s.of(event.Renewed) {
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
			h, err := s.locks.Mutex(name).Lock(t.Context())
			require.NoError(t, err)
			keepHandle(t, h)
		}
		permit, err := s.locks.Semaphore("pool", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"unknown extended": 3, "semaphore extended": 1}, renewed(10*time.Second))
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, s.direct.Del(t.Context(), "b").Err())
		counts := renewed(11 * time.Second)
		require.Equal(t, 1, counts["unknown gone"])
		require.GreaterOrEqual(t, counts["unknown extended"], 2)
		s.proxy.Inject(redistest.Rule{Match: runs("mutex/renew"), Action: redistest.Refuse("NOPERM no permission")})
		require.Positive(t, renewed(11 * time.Second)["unknown failed"])
	})
}

// A hold without renewal is only looked at. Heartbeats of waiters are no renewals.
func TestALookAtALeaseIsNoRenewal(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		h, err := s.locks.FairMutex("a").Lock(t.Context())
		require.NoError(t, err)
		waits := make(chan error)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		go func() { _, err := s.locks.FairMutex("a").Lock(ctx); waits <- err }()
		require.Error(t, <-waits)
		all := s.of(event.Renewed)
		require.NotEmpty(t, all)
		for _, e := range all {
			require.Equal(t, event.Checked, e.Result)
		}
		require.NoError(t, h.Unlock(t.Context()))
	}, redlatch.WithoutRenewal())
}

func TestACommandThatIsSentAgainIsARetry(t *testing.T) {
	for primitive, kind := range primitives {
		inObservedBubble(t, func(t *testing.T, s *observed) {
			_, release, err := kinds[kind].take(s.locks, t.Context()) // learns the server's clock, which is no retry
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
			synctest.Wait()
			require.Empty(t, s.of(event.Retried))
			s.proxy.Inject(redistest.Rule{Match: runs(kinds[kind].ask), Times: 2, Action: redistest.Refuse("LOADING Redis is loading")})
			_, release, err = kinds[kind].take(s.locks, t.Context())
			require.NoError(t, err)
			synctest.Wait()
			all := s.of(event.Retried)
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
	for primitive, kind := range primitives {
		inObservedBubble(t, func(t *testing.T, s *observed) {
			_, release, err := kinds[kind].take(s.locks, t.Context())
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
			s.proxy.Inject(redistest.Rule{Match: runs(kinds[kind].ask), Times: 1, Action: redistest.DelayReply(time.Second)})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, _, err = kinds[kind].take(s.locks, ctx)
			require.Error(t, err)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			e := s.take(t, event.LateGrant)
			require.Equal(t, primitive, e.Primitive)
			require.NotEmpty(t, e.ID)
		})
	}
}

func TestALostConnectionForMessagesIsObserved(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		h, err := s.other.Mutex(s.name).Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waits := make(chan error)
		go func() { _, err := s.mu.Lock(ctx); waits <- err }()
		synctest.Wait()
		require.Empty(t, s.of(event.Disconnected))
		s.proxy.KillAll()
		synctest.Wait()
		require.Error(t, s.take(t, event.Disconnected).Err)
		require.Error(t, <-waits)
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, s.locks.Close(t.Context()))
		synctest.Wait()
		require.Empty(t, s.of(event.Disconnected), "closing is no trouble")
	})
}

func TestADroppedHoldIsObserved(t *testing.T) {
	t.Parallel()
	server, r := redistest.Shared(t), &recorder{}
	locks := locksOn(t, server.Client(t), redlatch.WithObserver(r), redlatch.WithLease(2*time.Second))
	id, _ := drop(t, t.Context(), locks.Mutex(redistest.Name(t)))
	require.Eventually(t, func() bool { runtime.GC(); return len(r.of(event.Lost)) == 1 }, guard, 10*time.Millisecond)
	require.Equal(t, id, r.of(event.Leaked)[0].ID)
	require.Equal(t, event.Mutex, r.of(event.Leaked)[0].Primitive)
	require.Equal(t, event.NotRenewed, r.of(event.Lost)[0].Result)
}

// Whatever happens, each wait and each grant has one end. Calls give up at any moment, locks go on
// inside the client, Redis loses data, and the client closes.
func TestWaitsAndGrantsAreCountedUpAndDown(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inObservedBubble(t, func(t *testing.T, s *observed) {
				var work sync.WaitGroup
				for i := range uint64(12) {
					random := rand.New(rand.NewPCG(seed, i))
					work.Go(func() {
						for range 15 {
							kind := []string{"mutex", "mutex", "fair", "semaphore"}[random.IntN(4)]
							ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(400))*time.Millisecond)
							_, release, err := kinds[kind].take(s.locks, ctx)
							cancel()
							if err != nil {
								continue
							}
							if random.IntN(20) == 0 {
								_ = s.direct.FlushAll(context.Background()).Err()
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
					require.NoError(t, s.locks.Close(t.Context()))
				}
				work.Wait()
				require.NotEmpty(t, s.of(event.Released))
			}, redlatch.WithLease(time.Second))
		})
	}
}

func TestAnObserverThatPanicsHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, r := &logbook{}, &recorder{}
		s := inBubble(t, redlatch.WithLogger(slog.New(log)), redlatch.WithLease(3*time.Second),
			redlatch.WithObserver(event.Func(func(context.Context, event.Event) { panic("out of metrics") })), redlatch.WithObserver(r))
		for kind := range kinds {
			_, release, err := kinds[kind].take(s.locks, t.Context())
			require.NoError(t, err)
			time.Sleep(10 * time.Second) // renewals
			require.NoError(t, release(t.Context()))
		}
		h := s.lock(t.Context())
		require.NoError(t, s.direct.FlushAll(t.Context()).Err())
		<-h.Lost()
		require.NoError(t, s.locks.Close(t.Context()))
		panics := slices.DeleteFunc(log.lines(), func(line string) bool { return !strings.Contains(line, "an observer panicked") })
		require.Len(t, panics, 1)
		require.Contains(t, panics[0], "out of metrics")
		require.Len(t, r.of(event.Lost), 1, "the next observer is notified")
	})
}

// An observer blocks for ever, from its first event of one kind on. No call waits for it, and no loss or
// renewal does.
func TestAnObserverThatBlocksDelaysNothing(t *testing.T) {
	for kind := event.WaitBegan; kind <= event.Disconnected; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocked := make(chan struct{})
				defer close(blocked)
				s := inBubble(t, redlatch.WithLease(3*time.Second),
					redlatch.WithObserver(event.Func(func(_ context.Context, e event.Event) {
						if e.Kind == kind {
							<-blocked
						}
					})))
				held := s.lock(t.Context())
				busy, err := s.locks.FairMutex("queue").Lock(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = s.locks.FairMutex("queue").Lock(ctx)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				waits := make(chan *lock.Hold)
				go func() { waits <- s.lock(context.Background()) }()
				s.proxy.KillAll()
				time.Sleep(30 * time.Second) // many leases
				require.True(t, held.Trusted())
				began := time.Now()
				s.unlock(held)
				next := <-waits
				require.Zero(t, time.Since(began), "the handoff waits for nobody")
				require.NoError(t, s.direct.Del(t.Context(), s.name).Err())
				<-next.Lost()
				require.ErrorIs(t, next.Unlock(t.Context()), redlatch.ErrLost)
				require.NoError(t, busy.Unlock(t.Context()))
				for kind := range kinds {
					began := time.Now()
					_, release, err := kinds[kind].take(s.locks, t.Context())
					require.NoError(t, err)
					require.NoError(t, release(t.Context()))
					require.Zero(t, time.Since(began), kind)
				}
				_ = s.lock(t.Context())
				began = time.Now()
				require.NoError(t, s.locks.Close(t.Context()))
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
			})
		})
	}
}

// The observers are too slow, so that events are dropped. They are notified of how many, and of what they
// would have counted. After that they get all events again.
func TestEventsThatNobodyTakesAreDropped(t *testing.T) {
	var blocked chan struct{}
	log := &logbook{}
	inObservedBubble(t, func(t *testing.T, s *observed) {
		blocked = make(chan struct{})
		var holds []*lock.Hold
		for i := range 600 {
			h, err := s.locks.Mutex(fmt.Sprint(i)).Lock(t.Context())
			require.NoError(t, err)
			holds = append(holds, h)
		}
		permit, err := s.locks.Semaphore("pool", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		waits := make(chan *lock.Hold)
		go func() {
			h, err := s.locks.Mutex("0").Lock(context.Background())
			require.NoError(t, err)
			waits <- h
		}()
		synctest.Wait()
		for _, h := range holds[1:] {
			require.NoError(t, h.Unlock(t.Context()))
		}
		require.Empty(t, s.of(event.Dropped))
		close(blocked)
		dropped := s.of(event.Dropped)
		require.Len(t, dropped, 2)
		require.Equal(t, event.Event{Kind: event.Dropped, Primitive: event.Semaphore, Count: 2, Held: 1}, dropped[1])
		mutexes := dropped[0]
		require.Equal(t, event.Event{Kind: event.Dropped, Primitive: event.Mutex, Count: mutexes.Count, Waiting: 1, Held: 1}, mutexes)
		require.Equal(t, 600*2+1+599, mutexes.Count+len(s.of())-len(dropped), "each event is delivered or counted")
		waiting, held := s.balance()
		require.Equal(t, 1, waiting)
		require.Equal(t, 2, held)
		require.NoError(t, holds[0].Unlock(t.Context()))
		require.NoError(t, (<-waits).Unlock(t.Context()))
		require.NoError(t, permit.Release(t.Context()))
		logged := slices.DeleteFunc(log.lines(), func(line string) bool { return !strings.Contains(line, "an observer is too slow") })
		require.Len(t, logged, 1)
	}, redlatch.WithLogger(slog.New(log)), redlatch.WithObserver(event.Func(func(context.Context, event.Event) { <-blocked })))
}

func TestANilObserverIsRefused(t *testing.T) {
	_, err := redlatch.New(unused(t), redlatch.WithObserver(nil))
	requireBad(t, err, "observer", nil)
}

func TestAnObserverThatEndsItsGoroutineHidesNoEvent(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		r := &recorder{settle: awaitEvents}
		exits := event.Func(func(context.Context, event.Event) { runtime.Goexit() })
		locks := locksOn(t, s.direct, redlatch.WithObserver(exits), redlatch.WithObserver(r))
		h, err := locks.Mutex("orders").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		require.Len(t, r.of(), 3)
	})
}

func TestAReleaseThatCloseCannotConfirmSaysWhy(t *testing.T) {
	inObservedBubble(t, func(t *testing.T, s *observed) {
		h := s.lock(t.Context())
		s.proxy.Down()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, s.locks.Close(ctx))
		require.Error(t, s.take(t, event.Released).Err)
		runtime.KeepAlive(h)
	})
}
