package watchdog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steps is a wall clock that was set from time to time. A machine that was
// suspended looks the same from inside: the monotonic clock stood still.
type steps struct {
	mu sync.Mutex
	at []time.Time
	by []time.Duration
}

func (s *steps) read(t time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	wall := wallClock(t)
	for i, at := range s.at {
		if !t.Before(at) {
			wall += int64(s.by[i])
		}
	}
	return wall
}

func (s *steps) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.by = append(s.at, time.Now()), append(s.by, by)
}

func wallBubble(t *testing.T, f func(t *testing.T, w *Watchdog, srv *fake, wall *steps)) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		wall := &steps{}
		w.wall = wall.read
		f(t, w, srv, wall)
	})
}

// F36: a clock set forward must not end a hold.
func TestWallClockJumpIsUntrustedUntilAsked(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(every + every/4)
		asked := srv.count()
		wall.step(time.Hour)
		require.False(t, l.Trusted(), "at once")
		sleep(clockInterval)
		require.Equal(t, asked+1, srv.count(), "asked at once, not at the interval")
		require.True(t, l.Trusted())
		sleep(lease)
		require.LessOrEqual(t, srv.count(), asked+6, "and no more often than before")
		require.Empty(t, n.received())
	})
}

// F37: suspended for longer than the lease.
func TestSuspendIsLearnedFromTheServer(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(every + every/4)
		wall.step(time.Hour)
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Gone, b), nil })
		require.False(t, l.Trusted())
		sleep(clockInterval)
		require.Equal(t, []Reason{GoneOnServer}, n.received())
	})
}

func TestWallClockJumpWithoutAnAnswerIsRetriedAndNotALoss(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(every + every/4)
		until := l.TrustedUntil()
		asked := srv.count()
		wall.step(time.Hour)
		srv.set(down)
		sleep(10 * time.Second)
		require.Empty(t, n.received())
		require.False(t, l.Trusted())
		require.Greater(t, srv.count(), asked+5)
		require.Less(t, srv.count(), asked+40, "with back-off")
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.True(t, n.at.Equal(until), "when the monotonic clock says so")
	})
}

func TestSmallJumpBringsTheRenewalForward(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		w.Watch(spec("a", nil))
		afterRenewal(t, srv)
		sent := srv.last().at
		wall.step(trust - 5*time.Second) // over by the wall clock in five
		afterRenewal(t, srv)
		require.InDelta(t, 5, srv.last().at.Sub(sent).Seconds(), 0.1)
	})
}

func TestWallClockStepBackHasNoEffect(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		var n, m news
		l := w.Watch(spec("a", &n))
		afterRenewal(t, srv)
		asked := srv.count()
		wall.step(-time.Hour)
		require.True(t, l.Trusted())
		sleep(2 * clockInterval)
		require.Equal(t, asked, srv.count())
		w.Watch(spec("b", &m))
		until := l.TrustedUntil()
		srv.set(down)
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.True(t, n.at.Equal(until), "nor does it lengthen trust")
		require.Len(t, m.received(), 1)
	})
}

// The wall clock was set back before the machine slept: what it was set back must not
// be taken off the time that the machine slept.
func TestSuspendAfterAStepBackIsSeen(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		l := w.Watch(spec("a", nil))
		sleep(clockInterval)
		wall.step(-time.Hour)
		sleep(2 * clockInterval)
		asked := srv.count()
		wall.step(time.Hour / 2)
		require.False(t, l.Trusted(), "at once")
		sleep(clockInterval)
		require.Equal(t, asked+1, srv.count())
		require.True(t, l.Trusted(), "the server has it")
	})
}

func TestStepBackAndSuspendDuringACall(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(4 * time.Second)
			return yes(b), nil
		})
		l := w.Watch(spec("a", nil))
		afterRenewal(t, srv)
		wall.step(-time.Hour)
		sleep(2 * clockInterval)
		wall.step(time.Hour / 2)
		sleep(2 * time.Second)
		require.Equal(t, 2, srv.count(), "asked again at once")
		require.False(t, l.Trusted())
	})
}

// The command was sent before the wall clock was set back and the machine slept, and
// watched after both.
func TestStepBackAndSuspendBetweenGrantAndWatch(t *testing.T) {
	for name, events := range map[string][]time.Duration{
		"step back first": {-time.Hour, time.Hour / 2},
		"suspend first":   {time.Hour / 2, -time.Hour},
		"two steps back":  {-time.Hour, -time.Hour, time.Hour / 2},
	} {
		t.Run(name, func(t *testing.T) {
			wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
				const answerTime = time.Millisecond
				// Watch may make the loop ask immediately. The answer must not come before
				// the test has looked.
				srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
					time.Sleep(answerTime)
					return yes(b), nil
				})
				w.Watch(spec("other", nil))
				s := spec("a", nil)
				for _, by := range events {
					sleep(2 * clockInterval)
					wall.step(by)
				}
				l := w.Watch(s)
				require.False(t, l.Trusted())
				sleep(clockInterval + answerTime)
				require.True(t, l.Trusted(), "asked")
			})
		})
	}
}

// The command was sent after the clock was set back, and before that was noticed.
func TestGrantBetweenAStepBackAndItsDetection(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, _ *fake, wall *steps) {
		w.Watch(spec("other", nil))
		sleep(clockInterval + time.Millisecond)
		wall.step(-time.Hour)
		time.Sleep(time.Millisecond)
		s := spec("a", nil)
		s.Renew = false
		sleep(2 * clockInterval)
		require.True(t, w.Watch(s).Trusted())
	})
}

// Part of what the wall clock says went by while the machine slept, part of it while
// the lease, which is only looked at, was still its holder's.
func TestALeaseThatASuspendCutShortEndsSoon(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		const day, asleep = 24 * time.Hour, time.Hour
		var n news
		s := spec("a", &n)
		s.Lease, s.Margin, s.Interval, s.Renew = day, time.Second, day/3, false
		end := s.Sent.Add(day - asleep) // of the server's lease
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			if time.Now().Before(end) {
				return all(Held, b), nil
			}
			return all(Gone, b), nil
		})
		l := w.Watch(s)
		sleep(clockInterval)
		wall.step(-asleep)
		sleep(2 * clockInterval)
		wall.step(asleep)
		sleep(time.Until(end.Add(-s.Margin - time.Nanosecond)))
		require.True(t, l.Trusted())
		sleep(time.Nanosecond)
		require.False(t, l.Trusted())
		asked := srv.count()
		sleep(s.Margin + 2*clockInterval)
		require.Equal(t, []Reason{GoneOnServer}, n.received())
		require.Less(t, srv.count(), asked+5)
	})
}

// Had the clock merely been set, the questions become rare again.
func TestALeaseThatIsOnlyLookedAtIsNotAskedForWithoutEnd(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		const day = 24 * time.Hour
		s := spec("a", nil)
		s.Lease, s.Interval, s.Renew = day, day/3, false
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Held, b), nil })
		w.Watch(s)
		wall.step(day)
		sleep(day / 2)
		require.Less(t, srv.count(), 20)
	})
}

func TestClockSetRightAgainAsksLeasesTakenMeanwhile(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		wall.step(-time.Hour)
		w.Watch(spec("old", nil))
		sleep(3 * every)
		l := w.Watch(spec("a", nil))
		sleep(2 * clockInterval)
		wall.step(time.Hour)
		require.False(t, l.Trusted())
		sleep(clockInterval)
		require.True(t, l.Trusted())
	})
}

// The command was sent before the machine slept, and watched after it woke.
func TestSuspendBetweenGrantAndWatch(t *testing.T) {
	for name, meanwhile := range map[string]time.Duration{"not noticed yet": 0, "noticed": 2 * clockInterval} {
		t.Run(name, func(t *testing.T) {
			wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
				if meanwhile > 0 {
					w.Watch(spec("other", nil))
					sleep(clockInterval)
				}
				s := spec("a", nil)
				sleep(time.Millisecond)
				wall.step(time.Hour)
				sleep(meanwhile)
				l := w.Watch(s)
				require.False(t, l.Trusted())
				sleep(0)
				require.True(t, l.Trusted(), "asked at once")
			})
		})
	}
}

// Asked before the machine slept, answered after it woke.
func TestSuspendDuringACall(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(2 * time.Second)
			return yes(b), nil
		})
		l := w.Watch(spec("a", nil))
		afterRenewal(t, srv)
		wall.step(time.Hour)
		sleep(2 * time.Second)
		require.Equal(t, 2, srv.count(), "asked again at once")
		require.False(t, l.Trusted())
		sleep(2 * time.Second)
		require.True(t, l.Trusted())
	})
}

// Found by random schedules: the proof moved no trust on the monotonic clock, so
// the wall clock's was not renewed either, and the lease was asked for without end.
func TestJumpAtTheInstantOfAProof(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		w.Watch(spec("other", nil))
		sleep(0)
		l := w.Watch(spec("a", nil))
		wall.step(time.Hour)
		w.Watch(Spec{Lease: 2, Interval: 1, Sent: time.Now()}) // wakes the loop
		sleep(2)
		require.True(t, l.Trusted())
		require.Less(t, srv.count(), 5)
	})
}

func TestSlewingClockCostsNothing(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		l := w.Watch(spec("a", nil))
		before := w.offset
		for i := range 1000 {
			wall.step(500 * time.Microsecond)
			sleep(time.Second)
			require.True(t, l.Trusted())
			if i == 15 {
				w.mu.Lock()
				noticed := w.offset
				w.mu.Unlock()
				require.Equal(t, before, noticed, "not every lease is looked at for each")
			}
		}
		require.InDelta(t, 105, srv.count(), 10)
	})
}

func TestJumpAsksEveryLease(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		var running, most atomic.Int32
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			return yes(b), nil
		})
		var leases []*Lease
		for i := range 3000 {
			s := spec(fmt.Sprint(i), nil)
			s.Group = Group{Slot: i % 7}
			leases = append(leases, w.Watch(s))
		}
		sleep(every / 4)
		wall.step(time.Hour)
		sleep(clockInterval)
		for _, l := range leases {
			require.True(t, l.Trusted())
		}
		require.EqualValues(t, callsPrompt, most.Load(), "no more at once than there are places")
		for _, a := range srv.since(0) {
			require.LessOrEqual(t, len(a.batch), batchSize)
		}
	})
}

// Calls that hang give their place among all groups back after a moment, and
// those of one group pass theirs on as they return.
func TestPlacesArePassedOn(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		w.cfg.BatchSize = 1
		for i := range 3 * callsPrompt {
			s := spec("hangs", nil)
			s.Group = Group{Slot: i}
			w.Watch(s)
		}
		sleep(every / 4)
		srv.set(hang)
		wall.step(time.Hour)
		sleep(clockInterval + 2*slow)
		require.Equal(t, 3*callsPrompt, srv.count())
		for i, a := range srv.since(0) {
			require.Equal(t, time.Duration(i/callsPrompt)*slow, a.at.Sub(srv.since(0)[0].at))
		}
	})
}

func TestPlacesOfOneGroupArePassedOn(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		w.cfg.BatchSize = 1
		for range 5 * callsPerBucket {
			w.Watch(spec("a", nil))
		}
		sleep(every / 4)
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(time.Millisecond)
			return yes(b), nil
		})
		wall.step(time.Hour)
		sleep(clockInterval + slow)
		require.Equal(t, 5*callsPerBucket, srv.count())
		for i, a := range srv.since(0) {
			require.Equal(t, time.Duration(i/callsPerBucket)*time.Millisecond, a.at.Sub(srv.since(0)[0].at))
		}
	})
}

// What asks for everything at once, a clock that was set or an outage, must not
// leave everything in step from then on.
func TestLeasesAskedTogetherSpreadAgain(t *testing.T) {
	wallBubble(t, func(t *testing.T, w *Watchdog, srv *fake, wall *steps) {
		const n = 20
		w.cfg.BatchSize = 1
		for range n {
			w.Watch(spec("a", nil))
		}
		sleep(every / 4)
		wall.step(time.Hour)
		sleep(clockInterval + every)
		asked := srv.since(0)
		require.Less(t, asked[n-1].at.Sub(asked[0].at), slow, "together")
		require.Greater(t, asked[2*n-1].at.Sub(asked[n].at), every/20)
	})
}

// The wall reading of TrustedUntil is for people, and right after a step.
func TestTrustedUntilReadsRightOnTheWall(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		s := spec("a", nil)
		l := w.Watch(s)
		require.Equal(t, s.Sent.Add(trust).Round(0), l.TrustedUntil().Round(0))
	})
}
