package watchdog

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeaseIsHeldForTenHours(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		for range 3600 {
			time.Sleep(10 * time.Second)
			require.True(t, l.Trusted())
		}
		require.Empty(t, n.received())
		require.InDelta(t, 3600, srv.count(), 400, "one call an interval")
		asked := srv.since(0)
		for i := range asked[1:] {
			require.LessOrEqual(t, asked[i+1].at.Sub(asked[i].at), every, "never later than the interval")
		}
		require.True(t, l.Stop(bg))
	})
}

// Trust counts from before the command, and a slow reply shortens it.
func TestTrustCountsFromBeforeTheCallWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(2 * time.Second)
			return yes(b), nil
		})
		s := spec("a", nil)
		l := w.Watch(s)
		require.True(t, s.Sent.Add(trust).Equal(l.TrustedUntil()))
		sleep(every + 3*time.Second)
		require.True(t, srv.last().at.Add(trust).Equal(l.TrustedUntil()))
		require.Equal(t, lease, srv.last().batch[0].Lease)
	})
}

// Repetitions go by what is left of trust where that is less than the interval.
func TestALeaseThatEndsSoonIsAskedForAgainInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			if srv.count() <= 2 {
				return nil, errDown
			}
			return yes(b), nil
		})
		var n news
		s := spec("a", &n)
		time.Sleep(trust)
		s.Sent = s.Sent.Add(400 * time.Millisecond) // granted long ago
		w.Watch(s)
		sleep(lease)
		require.Empty(t, n.received())
	})
}

// Neither silent nor hasty.
func TestBlipShorterThanTrustIsInvisible(t *testing.T) {
	for name, fails := range map[string]func(context.Context, Group, []Renewal) ([]Result, error){
		"refused": down, "hanging": hang,
	} {
		for _, part := range []float64{0.3, 0.9} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
					var n news
					l := w.Watch(spec("a", &n))
					for range 8 {
						afterRenewal(t, srv)
						srv.set(fails)
						end := time.Now().Add(time.Duration(part * float64(lease)))
						for time.Now().Before(end) {
							require.True(t, l.Trusted())
							time.Sleep(50 * time.Millisecond)
						}
						srv.set(nil)
						sleep(lease)
					}
					require.Empty(t, n.received())
				})
			})
		}
	}
}

// afterRenewal waits until just after the next call.
func afterRenewal(t *testing.T, srv *fake) {
	t.Helper()
	end := time.Now().Add(2 * lease)
	for had := srv.count(); srv.count() == had; {
		if time.Now().After(end) {
			t.Fatal("nothing was asked for two leases")
		}
		sleep(10 * time.Millisecond)
	}
}

// Notified at the end of trust, margin before the server's lease can end.
func TestBlipLongerThanTheLeaseIsNotifiedWhenTrustEnds(t *testing.T) {
	for name, fails := range map[string]func(context.Context, Group, []Renewal) ([]Result, error){
		"refused": down, "hanging": hang,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
				var n news
				l := w.Watch(spec("a", &n))
				afterRenewal(t, srv)
				renewed := srv.last().at
				srv.set(fails)
				sleep(lease * 11 / 10)
				require.Equal(t, []Reason{TrustEnded}, n.received())
				require.True(t, n.at.Equal(renewed.Add(trust)), "exactly then")
				require.False(t, l.Trusted())
				require.Zero(t, w.Len())

				srv.set(nil)
				asked := srv.count()
				sleep(10 * lease)
				require.Equal(t, asked, srv.count(), "a lost lease is not asked for")
				require.Len(t, n.received(), 1)
				require.False(t, l.Stop(bg))
			})
		})
	}
}

func TestUnansweredLeaseIsRetriedSoonAndNotTooOften(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(down)
		w.Watch(spec("a", nil))
		sleep(lease)
		asked := srv.since(0)
		require.Greater(t, len(asked), 15)
		require.Less(t, len(asked), 40)
		for i := range asked[1:] {
			gap := asked[i+1].at.Sub(asked[i].at)
			require.LessOrEqual(t, gap, time.Second)
			require.Greater(t, gap, every/40)
		}
	})
}

func TestBackOffStartsAnewAfterAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		w.Watch(spec("a", nil))
		for range 20 {
			afterRenewal(t, srv)
			srv.set(down)
			afterRenewal(t, srv)
			failed := srv.last().at
			afterRenewal(t, srv)
			require.LessOrEqual(t, srv.last().at.Sub(failed), every/16)
			sleep(every)
			srv.set(nil)
			afterRenewal(t, srv)
		}
	})
}

func TestCallThatIgnoresItsEndIsGivenUpOnTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) {
			time.Sleep(time.Hour)
			return nil, nil
		})
		s := spec("a", nil)
		s.Lease, s.Margin, s.Interval = 300*time.Millisecond, 0, 100*time.Millisecond
		w.Watch(s)
		sleep(s.Lease)
		require.GreaterOrEqual(t, srv.count(), 3)
	})
}

func TestCallGetsATimeoutWithinTheTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		end := time.Now().Add(trust)
		var first, least time.Duration
		srv.set(func(ctx context.Context, _ Group, _ []Renewal) ([]Result, error) {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.False(t, deadline.After(end))
			d := time.Until(deadline)
			if first == 0 {
				first, least = d, d
			}
			if deadline.Before(end) {
				least = min(least, d)
			}
			return hang(ctx, Group{}, nil)
		})
		w.Watch(spec("a", nil))
		sleep(lease)
		require.Equal(t, every/2, first)
		require.GreaterOrEqual(t, least, every/8, "a slow server is not cut off ever shorter")
	})
}

func TestLateAnswerDoesNotResurrect(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			time.Sleep(2 * lease) // whatever its context says
			return yes(b), nil
		})
		s := spec("a", &n)
		l := w.Watch(s)
		sleep(trust - time.Nanosecond)
		require.Empty(t, n.received())
		require.True(t, l.Trusted())
		sleep(time.Nanosecond)
		require.Equal(t, []Reason{TrustEnded}, n.received(), "no matter that calls hang")
		require.False(t, l.Trusted())
		require.Greater(t, srv.count(), 2, "asked again, beside the calls that ignore their end")
		sleep(5 * lease)
		require.False(t, l.Trusted())
		require.Len(t, n.received(), 1)
	})
}

// A server that answers every renewal, but too late for the call, keeps the lease:
// trust counts from the sending. So it is with one that breaks connections at the end of
// a call's time: the next call gets twice that.
func TestAServerThatIsSlowKeepsTheLease(t *testing.T) {
	servers := map[string]Renew{
		"answers come late": func(ctx context.Context, _ Group, b []Renewal) ([]Result, error) {
			<-ctx.Done()
			time.Sleep(2 * grace)
			return yes(b), nil
		},
		"connections end with the call": func(ctx context.Context, _ Group, b []Renewal) ([]Result, error) {
			select {
			case <-time.After(every * 6 / 10):
				return yes(b), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
				var n news
				srv.set(server)
				l := w.Watch(spec("a", &n))
				sleep(20 * lease)
				require.Empty(t, n.received())
				require.True(t, l.Trusted())
			})
		})
	}
}

// A call given up that says later that the lease is gone is not heeded, even when a
// later one still keeps the lease.
func TestAnswerAfterGivingUpIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		var answered atomic.Bool
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			if !answered.Swap(true) {
				time.Sleep(every)
				return all(Gone, b), nil
			}
			return yes(b), nil
		})
		l := w.Watch(spec("a", &n))
		sleep(3 * lease)
		require.Empty(t, n.received())
		require.True(t, l.Trusted())
	})
}

func TestGoneIsNotifiedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(lease)
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Gone, b), nil })
		afterRenewal(t, srv)
		require.Equal(t, []Reason{GoneOnServer}, n.received())
		require.True(t, n.at.Equal(srv.last().at))
		require.False(t, l.Trusted())
		require.False(t, l.TrustedUntil().After(n.at))
	})
}

func TestHeldKeepsWatchingAndMovesNoTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Held, b), nil })
		s := spec("a", &n)
		w.Watch(s)
		sleep(lease)
		require.InDelta(t, 3, srv.count(), 1, "the next question comes an interval later")
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.True(t, n.at.Equal(s.Sent.Add(trust)))
	})
}

func TestLeaseNotRenewedIsLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n, m news
		s := spec("a", &n)
		s.Renew = false
		s.MaxHold = time.Second // which does not end what was never extended
		w.Watch(s)
		sleep(lease)
		require.GreaterOrEqual(t, srv.count(), 2)
		for _, a := range srv.since(0) {
			require.Zero(t, a.batch[0].Lease)
		}
		require.Equal(t, []Reason{TrustEnded}, n.received())

		s = spec("b", &m)
		s.Renew = false
		w.Watch(s)
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Gone, b), nil })
		sleep(every)
		require.Equal(t, []Reason{GoneOnServer}, m.received(), "a definite loss is notified all the same")
	})
}

// A renewed answer to a look would be a bug of Renew; it must not extend trust.
func TestLookNeverExtendsTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) { return all(Renewed, b), nil })
		s := spec("a", nil)
		s.Renew = false
		s.Margin = -lease // so that sent + 0 − margin would be later
		l := w.Watch(s)
		until := l.TrustedUntil()
		sleep(5 * every)
		require.True(t, until.Equal(l.TrustedUntil()))
	})
}

func TestMaxHoldStopsExtending(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		s := spec("a", &n)
		s.MaxHold = 5 * time.Minute
		w.Watch(s)
		sleep(s.MaxHold + lease)
		require.Equal(t, []Reason{MaxHoldReached}, n.received())
		var lastRenewal time.Time
		looks := 0
		for _, a := range srv.since(0) {
			if a.batch[0].Lease > 0 {
				lastRenewal = a.at
				require.True(t, a.at.Before(s.Sent.Add(s.MaxHold)))
			} else {
				looks++
			}
		}
		require.True(t, n.at.Equal(lastRenewal.Add(trust)))
		require.Positive(t, looks)
	})
}

func TestAbandonedLeaseRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		sleep(5 * lease)
		until := l.TrustedUntil()
		asked := srv.count()
		l.StopRenewing()
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.True(t, n.at.Equal(until))
		require.Greater(t, srv.count(), asked)
		for _, a := range srv.since(asked) {
			require.Zero(t, a.batch[0].Lease)
		}
	})
}

func TestAbandonedLeaseMayBeResumed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n, m, o news
		l := w.Watch(spec("a", &n))
		l.StopRenewing()
		sleep(every)
		require.Zero(t, srv.last().batch[0].Lease)
		l.ResumeRenewing()
		sleep(5 * lease)
		require.Empty(t, n.received())
		require.Equal(t, lease, srv.last().batch[0].Lease)
		l.Stop(bg)

		s := spec("b", &m)
		s.Renew = false
		w.Watch(s).ResumeRenewing()
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, m.received(), "what its Spec said stands")

		s = spec("c", &o)
		s.MaxHold = time.Second
		w.Watch(s).StopRenewing()
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, o.received(), "it ran out because it was abandoned")
	})
}

func TestConfirmMovesTrustAndGrowsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		s := spec("a", nil)
		l := w.Watch(s)
		time.Sleep(time.Second)

		l.MarkRenewed(s.Sent.Add(-time.Minute), lease)
		require.True(t, l.TrustedUntil().Equal(s.Sent.Add(trust)), "an earlier command moves nothing")
		l.MarkRenewed(s.Sent, lease/2)
		require.True(t, l.TrustedUntil().Equal(s.Sent.Add(trust)), "nor does a shorter lease")

		now := time.Now()
		l.MarkRenewed(now, 2*lease)
		require.True(t, l.TrustedUntil().Equal(now.Add(2*lease-margin)))
		l.MarkRenewed(now, lease)
		require.True(t, l.TrustedUntil().Equal(now.Add(2*lease-margin)))
		sleep(every)
		require.Equal(t, 2*lease, srv.last().batch[0].Lease, "never shrinks")
	})
}

// The heap is not touched by Confirm: the loop must not act on the old end.
func TestConfirmDuringAHangingRenewalKeepsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		srv.set(hang)
		l := w.Watch(spec("a", &n))
		sleep(trust - time.Second)
		now := time.Now()
		l.MarkRenewed(now, lease)
		sleep(trust - time.Nanosecond)
		require.Empty(t, n.received())
		sleep(time.Nanosecond)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		l.MarkRenewed(time.Now(), lease)
		require.False(t, l.Trusted(), "what is over stays over")
	})
}

func TestTrustThatIsOverAlreadyIsNotifiedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		s := spec("a", &n)
		s.Sent = s.Sent.Add(-time.Hour)
		l := w.Watch(s)
		require.False(t, l.Trusted())
		sleep(0)
		require.Equal(t, []Reason{TrustEnded}, n.received())
		require.Zero(t, srv.count())
	})
}

// No overflow into the past.
func TestEndlessLeaseAndMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		s := spec("a", &n)
		s.Lease, s.MaxHold = 1<<63-1, 1<<63-1
		l := w.Watch(s)
		sleep(6 * time.Hour)
		require.Empty(t, n.received())
		require.True(t, l.Trusted())
		require.Positive(t, srv.last().batch[0].Lease)
	})
}

// The margin is kept from the grant on, before any renewal.
func TestTrustInAGrantKeepsTheMargin(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		s := spec("a", new(news))
		require.True(t, s.Sent.Add(s.Lease-s.Margin).Equal(w.Watch(s).TrustedUntil()))
	})
}
