package watchdog

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The watchdog must not outlive the lock.
func TestStopWaitsForTheCallUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		returned := make(chan time.Time, 10)
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(3 * time.Second)
			returned <- time.Now()
			return all(Gone, b), nil
		})
		l := w.Watch(spec("a", &n))
		afterRenewal(t, srv)
		require.True(t, l.Stop(bg))
		require.Len(t, returned, 1)
		require.True(t, (<-returned).Equal(time.Now()), "no longer than that")
		sleep(10 * lease)
		require.Empty(t, n.received(), "gone after Stop began is our own release")
		require.Equal(t, 1, srv.count())
		require.Zero(t, w.Len())
		require.True(t, l.Stop(bg), "twice is fine")
	})
}

func TestStopWaitsNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(time.Hour)
			return all(Gone, b), nil
		})
		l := w.Watch(spec("a", &n))
		afterRenewal(t, srv)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		start := time.Now()
		var both sync.WaitGroup
		both.Go(func() { l.Stop(ctx) })
		both.Go(func() { l.Stop(ctx) })
		both.Wait()
		require.Equal(t, time.Second, time.Since(start))
		sleep(2 * time.Hour)
		require.Empty(t, n.received())
		require.Equal(t, 1, srv.count())
		l.Stop(bg)
	})
}

func TestStopWaitsForCallsGivenUpToo(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		running := atomic.Int32{}
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) {
			running.Add(1)
			defer running.Add(-1)
			time.Sleep(time.Minute)
			return nil, nil
		})
		l := w.Watch(spec("a", nil))
		sleep(trust - time.Second)
		require.Greater(t, running.Load(), int32(1))
		require.True(t, l.Stop(bg))
		require.Zero(t, running.Load())
	})
}

func TestStopWithoutACallDoesNotBlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		dead, cancel := context.WithCancel(bg)
		cancel()
		start := time.Now()
		for range 1000 {
			require.True(t, w.Watch(spec("a", nil)).Stop(dead))
			require.True(t, w.Watch(spec("a", nil)).Stop(bg))
		}
		require.Zero(t, time.Since(start))
		sleep(lease)
		require.Zero(t, srv.count())
		require.Empty(t, w.buckets, "empty buckets go")
	})
}

func TestStopWhileInLineIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		w.cfg.BatchSize = 1
		var mu sync.Mutex
		asked := map[string]bool{}
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			mu.Lock()
			asked[b[0].Key] = true
			mu.Unlock()
			time.Sleep(every / 2)
			return yes(b), nil
		})
		var leases []*Lease
		for i := range 20 {
			leases = append(leases, w.Watch(spec(fmt.Sprint(i), nil)))
		}
		sleep(every)
		w.mu.Lock()
		var inLine []*Lease
		for _, l := range leases {
			if l.state == waiting {
				inLine = append(inLine, l)
			}
		}
		w.mu.Unlock()
		require.NotEmpty(t, inLine)
		for _, l := range inLine {
			l.Stop(bg)
		}
		sleep(lease)
		mu.Lock()
		defer mu.Unlock()
		for _, l := range inLine {
			require.False(t, asked[l.key])
		}
	})
}

func TestEndedMayStopAndClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(down)
		leases := make(chan *Lease, 1) // a plain variable would race: Ended may run before Watch returns
		var ended atomic.Int32
		s := spec("a", nil)
		s.OnLost = LossFunc(func(Reason) {
			l := <-leases
			require.False(t, l.Stop(bg))
			w.Close()
			ended.Add(1)
		})
		leases <- w.Watch(s)
		sleep(lease)
		require.EqualValues(t, 1, ended.Load())
	})
}

func TestEndedThatBlocksDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(down)
		for range 10 {
			s := spec("a", nil)
			s.OnLost = LossFunc(func(Reason) { time.Sleep(time.Hour) })
			w.Watch(s)
		}
		time.Sleep(time.Millisecond)
		var n news
		s := spec("b", &n)
		w.Watch(s)
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.True(t, n.at.Equal(s.Sent.Add(trust)))
		sleep(time.Hour)
	})
}

func TestStopThatComesBeforeEndedWins(t *testing.T) {
	// The loss is decided in the loop and notified in a goroutine; between the two
	// Stop still has the say.
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(time.Second)
		w.mu.Lock()
		w.lose(l, GoneOnServer)
		l.state = stopped // as Stop does
		w.mu.Unlock()
		sleep(0)
		require.Empty(t, n.received())

		l = w.Watch(spec("b", &n))
		w.mu.Lock()
		w.drop(l)
		l.state = lost // as in lose, whose goroutine has not run yet
		w.mu.Unlock()
		require.True(t, l.Stop(bg))
		w.notify(l)
		require.Empty(t, n.received())
	})
}

// The proof: short leases come and go by the thousand, on the real clock
// and in parallel. Each is notified once or never, and Stop knows which.
func TestHammer(t *testing.T) {
	t.Parallel()
	stoppedKeys := sync.Map{}
	w := New(Config{BatchSize: 7, Renew: func(ctx context.Context, _ Group, b []Renewal) ([]Result, error) {
		for _, r := range b {
			if _, over := stoppedKeys.Load(r.Key); over {
				t.Error("asked after Stop returned")
			}
		}
		answers := yes(b)
		for i := range answers {
			answers[i] = Result(rand.IntN(4))
		}
		if rand.IntN(50) == 0 {
			panic("boom")
		}
		return answers, nil
	}})
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := range 800 {
				var notified atomic.Int32
				l := w.Watch(Spec{
					Key: fmt.Sprint(worker, "/", i), Group: Group{Slot: i % 3}, Renew: true,
					Lease: 6 * time.Millisecond, Margin: time.Millisecond, Interval: time.Millisecond,
					Sent: time.Now(), OnLost: LossFunc(func(Reason) { notified.Add(1) }),
				})
				if rand.IntN(2) == 0 {
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				}
				if rand.IntN(4) == 0 {
					l.MarkRenewed(time.Now(), 7*time.Millisecond)
				}
				kept := l.Stop(bg)
				stoppedKeys.Store(l.key, true)
				if kept && notified.Load() != 0 {
					t.Error("notified and yet kept")
				}
				for deadline := time.Now().Add(10 * time.Second); !kept && notified.Load() == 0; {
					if time.Now().After(deadline) {
						t.Error("lost and never notified")
						break
					}
					time.Sleep(time.Microsecond)
				}
				if notified.Load() > 1 {
					t.Error("notified twice")
				}
			}
		})
	}
	workers.Wait()
	require.Zero(t, w.Len())
	w.Close()
}

func TestCloseEndsEverythingAndNotifiesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n news
		var returned atomic.Int32
		var log strings.Builder
		w := New(Config{
			Renew: func(ctx context.Context, _ Group, b []Renewal) ([]Result, error) {
				<-ctx.Done()
				time.Sleep(grace / 2)
				returned.Add(1)
				return nil, ctx.Err()
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		l := w.Watch(spec("a", &n))
		w.Watch(spec("b", &n))
		sleep(every)
		start := time.Now()
		var both sync.WaitGroup
		both.Go(w.Close)
		both.Go(w.Close)
		both.Wait()
		require.Positive(t, returned.Load(), "the call was ended, and waited for")
		require.Equal(t, grace/2, time.Since(start))
		require.Empty(t, log.String(), "that is no failure")
		require.Zero(t, w.Len())
		w.Close()

		late := w.Watch(spec("c", &n))
		require.True(t, late.Trusted())
		require.Zero(t, w.Len())
		sleep(lease)
		require.False(t, late.Trusted())
		require.Empty(t, n.received())
		require.True(t, l.Stop(bg))
		require.True(t, late.Stop(bg))
	})
}

// A server that swallows a renewal keeps go-redis for its whole read timeout, and
// must not keep Close.
func TestCloseLeavesBehindWhatIgnoresIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) {
			time.Sleep(time.Hour)
			return nil, nil
		})
		w.Watch(spec("a", nil))
		sleep(every)
		require.Equal(t, 1, srv.count())
		start := time.Now()
		w.Close()
		require.Equal(t, grace, time.Since(start))
	})
}

// On a busy machine the goroutine of a call may begin long after the batch was
// made, when Stop has stopped waiting for it. What it sends then is what is still
// wanted.
func TestCallThatBeginsLateLeavesOutWhatWasStopped(t *testing.T) {
	for _, stopped := range []int{1, 2} {
		t.Run(strconv.Itoa(stopped), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
				leases := []*Lease{w.Watch(spec("a", nil)), w.Watch(spec("b", nil))}
				c := notBegun(w, leases)
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				for _, l := range leases[:stopped] {
					require.True(t, l.Stop(gone), "it does not wait any longer")
				}
				w.run(c)
				if stopped == 2 {
					require.Zero(t, srv.count())
				} else {
					require.Equal(t, []Renewal{{Key: "b", ID: leases[1].id, Lease: lease}}, srv.last().batch)
					require.Equal(t, idle, leases[1].state)
				}
				require.Empty(t, w.calls)
				require.Zero(t, c.server.prompt)
				require.True(t, leases[0].Stop(t.Context()), "nothing names it")
			})
		})
	}
}

// One that begins after it was given up sends nothing: its leases are in another
// call, or will be.
func TestCallThatBeginsAfterItWasGivenUpIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		leases := []*Lease{w.Watch(spec("a", nil))}
		c := notBegun(w, leases)
		sleep(c.timeout + grace)
		w.mu.Lock()
		w.giveUp(c.end)
		w.mu.Unlock()
		srv.set(hang)
		for srv.count() == 0 {
			sleep(time.Second)
		}
		require.Equal(t, inCall, leases[0].state, "in the next call")
		again := srv.count()
		w.run(c)
		require.Equal(t, again, srv.count())
	})
}

// notBegun is a call whose goroutine has not begun.
func notBegun(w *Watchdog, leases []*Lease) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		l.state = waiting
	}
	return w.newCall(w.serverOf(leases[0].bucket), leases[0].bucket, leases, w.now())
}

func TestCloseBeforeEndedBeganSilencesIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		w.mu.Lock()
		w.lose(l, GoneOnServer)
		w.closed = true // as Close does
		w.mu.Unlock()
		sleep(0)
		require.Empty(t, n.received())
	})
}

func TestNothingRunsBeforeTheFirstWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		require.False(t, w.running)
	})
}

func TestLoopSleepsWhenNothingIsWatched(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		l := w.Watch(spec("a", nil))
		l.Stop(bg)
		sleep(2 * clockInterval)
		require.EqualValues(t, never, sleepsUntil(w))
		w.Watch(spec("b", nil))
		sleep(every)
		require.Equal(t, 1, srv.count(), "and wakes again")
	})
}

// The hot path: a lease that is due later than something else wakes nobody.
func TestWatchWakesTheLoopOnlyForWhatIsDueEarlier(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		w.Watch(spec("a", nil))
		sleep(clockInterval / 2) // another pass now would sleep until later
		w.Watch(spec("b", nil)).Stop(bg)
		sleep(0)
		require.Equal(t, clockInterval, sleepsUntil(w), "what it slept for before")
		s := spec("c", nil)
		s.Interval = 10 * time.Millisecond
		w.Watch(s)
		require.LessOrEqual(t, sleepsUntil(w), clockInterval/2+s.Interval)
	})
}

// sleepsUntil is when the loop will wake, since the watchdog was made.
func sleepsUntil(w *Watchdog) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.wakeAt)
}

func TestMisuse(t *testing.T) {
	require.Panics(t, func() { New(Config{}) })
	w := New(Config{Renew: (&fake{}).renew})
	defer w.Close()
	require.Panics(t, func() { w.Watch(Spec{Lease: lease}) })
	require.Equal(t, "the server says it is not ours", GoneOnServer.String())
	require.Equal(t, "no confirmation in time", TrustEnded.String())
	require.Equal(t, "the maximum hold time is over", MaxHoldReached.String())
	require.Equal(t, "unknown reason", Reason(0).String())
}
