package watchdog

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// 100,000 leases, at most a hundredth as many calls a round, spread over
// the interval, none late, and no goroutine for each.
func TestHundredThousandLeasesTakeAThousandCallsARound(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		const n, rounds = 100_000, 3
		var mu sync.Mutex
		calls, asked, running, most, largest := 0, 0, 0, 0, 0
		perSecond := map[int64]int{}
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			mu.Lock()
			calls, asked, running = calls+1, asked+len(b), running+1
			most, largest = max(most, running), max(largest, len(b))
			perSecond[time.Now().Unix()]++
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return yes(b), nil
		})
		var lost news
		for i := range n {
			w.Watch(spec(fmt.Sprint(i), &lost))
		}
		sleep(rounds * every)
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, lost.received())
		require.LessOrEqual(t, largest, batchSize)
		require.LessOrEqual(t, most, callsPrompt)
		require.LessOrEqual(t, float64(calls), 1.02*float64(asked)/batchSize, "the batches are full")
		require.LessOrEqual(t, asked, n*(rounds+1), "a round is hardly shorter than the interval")
		for second, calls := range perSecond {
			require.Less(t, calls, 3*n/batchSize/10, "second %d", second)
		}
		t.Logf("%d rounds: %d calls, %.1f leases each", rounds, calls, float64(asked)/float64(calls))
	})
}

// Leases of one group that drift together stay together: few leases in many
// groups do not mean a call for each for ever.
func TestFewLeasesPerGroupShareACall(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		const groups, each = 100, 6
		for i := range groups * each {
			s := spec(fmt.Sprint(i), nil)
			s.Group = Group{Slot: i % groups}
			s.ID = fmt.Sprint(s.Group.Slot)
			w.Watch(s)
		}
		sleep(20 * lease)
		had := srv.count()
		sleep(10 * every)
		calls, asked := 0, 0
		for _, a := range srv.since(had) {
			calls, asked = calls+1, asked+len(a.batch)
			for _, r := range a.batch {
				if r.ID != fmt.Sprint(a.group.Slot) {
					t.Fatalf("a lease of group %s in a call of %d", r.ID, a.group.Slot)
				}
			}
		}
		require.Greater(t, float64(asked)/float64(calls), 2.0)
	})
}

// What fails because leases of one group must not share a call after all, is asked
// again by groups that may, long before trust ends; leases that wait for a call move too.
func TestRegroupedLeasesAreAskedByTheirNewGroups(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		const leases = 1000
		want := func(key string) int { return int(key[len(key)-1]) + 1 }
		srv.set(func(_ context.Context, group Group, b []Renewal) ([]Result, error) {
			for _, r := range b {
				if group.Slot != want(r.Key) {
					time.Sleep(4 * time.Second) // meanwhile others get in line
					w.Regroup(func(key string, _ Group) Group { return Group{Slot: want(key)} })
					return all(Unknown, b), nil
				}
			}
			return yes(b), nil
		})
		var lost news
		for i := range leases {
			w.Watch(spec(fmt.Sprint(i), &lost))
		}
		sleep(5 * lease)
		require.Empty(t, lost.received())
		require.Equal(t, leases, w.Len())
		wrong := 0
		for _, a := range srv.since(0) {
			if a.group.Slot == 0 {
				wrong++
			}
		}
		require.LessOrEqual(t, wrong, callsPerBucket)
	})
}

// Leases of the named groups are asked for at once, in full batches and each once; others
// wait for their time.
func TestHurriedLeasesAreAskedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		const leases = 1000
		for i := range leases {
			s := spec(fmt.Sprint(i), nil)
			s.Group = Group{Slot: i % 2}
			w.Watch(s)
		}
		sleep(time.Second)
		require.Zero(t, srv.count())
		w.RenewNow(func(group Group) bool { return group.Slot == 1 })
		sleep(time.Second)
		asked := 0
		for _, a := range srv.since(0) {
			require.Equal(t, 1, a.group.Slot)
			require.Len(t, a.batch, batchSize)
			asked += len(a.batch)
		}
		require.Equal(t, leases/2, asked)
	})
}

// A call that was sent before the hurry may have its answer from before the news, so another
// follows it.
func TestALeaseThatIsHurriedDuringACallIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		const slow = 100 * time.Millisecond
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			if srv.count() == 1 {
				w.RenewNow(func(Group) bool { return true })
				time.Sleep(slow)
			}
			return yes(b), nil
		})
		w.Watch(spec("hurried", nil))
		sleep(every + slow)
		require.Equal(t, 2, srv.count())
		sleep(every / 4)
		require.Equal(t, 2, srv.count(), "once only")
	})
}

func TestBatchSizeIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		w.cfg.BatchSize = 3
		for i := range 20 {
			w.Watch(spec(fmt.Sprint(i), nil))
		}
		sleep(lease)
		for _, a := range srv.since(0) {
			require.LessOrEqual(t, len(a.batch), 3)
		}
	})
}

// Being asked together because one is due never makes the end of trust early
// or a question late.
func TestCoalescingStopsAtAnEndOfTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		s := spec("ends", &n)
		s.Lease = every + margin // trust ends when its neighbours are due
		s.Renew = false
		w.Watch(s)
		for i := range 50 {
			w.Watch(spec(fmt.Sprint(i), nil))
		}
		sleep(lease)
		require.True(t, n.at.Equal(s.Sent.Add(every)))
		require.Equal(t, 50, w.Len())
	})
}
