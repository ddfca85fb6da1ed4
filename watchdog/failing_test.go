package watchdog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One panic must not end renewal.
func TestPanickingRenewIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		l := w.Watch(spec("a", &n))
		afterRenewal(t, srv)
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) { panic("boom") })
		sleep(lease / 2)
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) {
			runtime.Goexit()
			return nil, nil
		})
		sleep(lease / 4)
		srv.set(nil)
		sleep(lease)
		require.True(t, l.Trusted())
		require.Empty(t, n.received())
	})
}

func TestShortAnswerLeavesTheRestUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var a, b news
		srv.set(func(_ context.Context, _ Group, batch []Renewal) ([]Result, error) {
			var answers []Result
			for _, r := range batch {
				if r.Key == "b" {
					break
				}
				answers = append(answers, Renewed)
			}
			return answers, errDown // answers that come with an error count
		})
		la := w.Watch(spec("a", &a))
		lb := w.Watch(spec("b", &b))
		sleep(lease)
		require.Empty(t, a.received())
		require.True(t, la.Trusted())
		require.Equal(t, []Reason{TrustEnded}, b.received())
		require.False(t, lb.Trusted())
	})
}

func TestAnswerNobodyKnowsIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var n news
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			return append(all(Result(9), b), Gone, Gone), nil // and too many
		})
		w.Watch(spec("a", &n))
		sleep(lease)
		require.Equal(t, []Reason{TrustEnded}, n.received())
	})
}

func TestHangingGroupsDelayNoOther(t *testing.T) {
	// A thousand groups hang, more than there are places; ten are well. The
	// well ones' leases stand, and none is asked for late.
	for _, ignore := range []bool{false, true} {
		t.Run(fmt.Sprint("ignoring=", ignore), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
				const bad, good = 1000, 10
				var mu sync.Mutex
				last := map[string]time.Time{}
				srv.set(func(ctx context.Context, group Group, b []Renewal) ([]Result, error) {
					if group.Slot >= good {
						if ignore {
							time.Sleep(2 * time.Minute)
						}
						return hang(ctx, group, b)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, r := range b {
						if at, ok := last[r.Key]; ok && time.Since(at) > 2*every {
							t.Errorf("%s asked for after %v", r.Key, time.Since(at))
						}
						last[r.Key] = time.Now()
					}
					return yes(b), nil
				})
				var well news
				for g := range good + bad {
					s := spec(fmt.Sprint(g), nil)
					s.Group = Group{Slot: g}
					if g < good {
						s.OnLost = LossFunc(well.ended)
					}
					w.Watch(s)
				}
				sleep(10 * lease)
				require.Empty(t, well.received())
				require.Equal(t, good, w.Len())
			})
		})
	}
}

// Thousands of groups hang on one server, far more than give up their places in a round. The leases
// on another server are asked for in time, and each server is two lines in the log.
func TestAServerThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 3000
		var mu sync.Mutex
		var b strings.Builder
		last := map[string]time.Time{}
		var up atomic.Bool
		srv := &fake{reply: func(ctx context.Context, group Group, b []Renewal) ([]Result, error) {
			if group.Slot%2 == 1 {
				if up.Load() {
					return yes(b), nil
				}
				return hang(ctx, group, b)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range b {
				if at, ok := last[r.Key]; ok && time.Since(at) > every+slow {
					t.Errorf("%s asked for after %v", r.Key, time.Since(at))
				}
				last[r.Key] = time.Now()
			}
			return yes(b), nil
		}}
		w := New(Config{
			Renew: srv.renew, Logger: slog.New(slog.NewTextHandler(locked{&mu, &b}, nil)),
			Server: func(slot int) string { return []string{"up:1", "down:1"}[slot%2] },
		})
		defer w.Close()
		var well news
		for g := range 2 * each {
			s := spec(fmt.Sprint(g), nil)
			s.Group.Slot = g
			if g%2 == 0 {
				s.OnLost = LossFunc(well.ended)
			}
			w.Watch(s)
		}
		sleep(lease / 2)
		up.Store(true)
		sleep(every)
		up.Store(false)
		sleep(3 * lease)
		require.Empty(t, well.received())
		require.Equal(t, each, w.Len(), "those of the other server are lost")
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, last, each)
		require.Equal(t, 2, strings.Count(b.String(), "began to fail"), b.String())
		require.Equal(t, 1, strings.Count(b.String(), "work again"), b.String())
		require.Equal(t, 3, strings.Count(b.String(), "server=down:1"), b.String())
	})
}

// The permission for one kind of lease may be missing all the time. That hides no outage from the
// log.
func TestEachKindOfLeaseHasItsOwnLineInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var b strings.Builder
		srv := &fake{}
		w := New(Config{Renew: srv.renew, Logger: slog.New(slog.NewTextHandler(locked{&mu, &b}, nil))})
		defer w.Close()
		refuse := func(kinds ...int) {
			srv.set(func(_ context.Context, group Group, b []Renewal) ([]Result, error) {
				if slices.Contains(kinds, group.Kind) {
					return nil, errDown
				}
				return yes(b), nil
			})
		}
		refuse(1)
		for i := range 40 {
			s := spec(fmt.Sprint(i), nil)
			s.Group = Group{Kind: i % 2, Slot: i / 4}
			w.Watch(s)
		}
		sleep(every)
		refuse(0, 1)
		sleep(every)
		refuse(1)
		sleep(every)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 2, strings.Count(b.String(), "began to fail"), b.String())
		require.Equal(t, 1, strings.Count(b.String(), "work again"), b.String())
		require.NotContains(t, b.String(), "server=")
	})
}

func TestOneHangingGroupTakesAFewPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		var mu sync.Mutex
		running, most := 0, 0
		srv.set(func(ctx context.Context, group Group, b []Renewal) ([]Result, error) {
			if group.Slot == 1 {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				return hang(ctx, group, b)
			}
			return yes(b), nil
		})
		for i := range 5000 {
			s := spec(fmt.Sprint(i), nil)
			s.Group = Group{Slot: i % 2}
			w.Watch(s)
		}
		sleep(lease)
		require.Equal(t, callsPerBucket, most)
		require.Equal(t, 2500, w.Len(), "those of the other group")
	})
}

func TestOneLeasesFailureIsNotItsNeighbours(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(_ context.Context, _ Group, b []Renewal) ([]Result, error) {
			answers := yes(b)
			for i, r := range b {
				switch r.Key {
				case "0":
					answers[i] = Gone
				case "1":
					answers[i] = Unknown
				}
			}
			return answers, nil
		})
		n := make([]news, 10)
		for i := range n {
			w.Watch(spec(fmt.Sprint(i), &n[i]))
		}
		sleep(10 * lease)
		require.Equal(t, []Reason{GoneOnServer}, n[0].received())
		require.Equal(t, []Reason{TrustEnded}, n[1].received())
		for i := range n[2:] {
			require.Empty(t, n[2+i].received())
		}
	})
}

// A short lease among long ones: the long ones keep their call time.
func TestIntervalsDoNotMixInACall(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, srv *fake) {
		srv.set(func(ctx context.Context, _ Group, b []Renewal) ([]Result, error) {
			select {
			case <-time.After(200 * time.Millisecond): // slower than the short one's call time
				return yes(b), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		var long, short news
		w.Watch(spec("long", &long))
		s := spec("short", &short)
		s.Lease, s.Margin, s.Interval = 300*time.Millisecond, 10*time.Millisecond, 100*time.Millisecond
		w.Watch(s)
		sleep(time.Minute)
		require.Empty(t, long.received())
		require.Equal(t, []Reason{TrustEnded}, short.received())
	})
}

func TestAnOutageIsTwoLinesInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var b strings.Builder
		srv := &fake{}
		w := New(Config{Renew: srv.renew, Logger: slog.New(slog.NewTextHandler(locked{&mu, &b}, nil))})
		defer w.Close()
		for i := range 300 {
			w.Watch(spec(fmt.Sprint(i), nil))
		}
		sleep(every)
		srv.set(func(context.Context, Group, []Renewal) ([]Result, error) { panic("boom") })
		sleep(lease / 2)
		srv.set(nil)
		sleep(every)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 2, strings.Count(b.String(), "\n"), b.String())
		require.Contains(t, b.String(), "boom")
		require.Contains(t, b.String(), "fake_test.go", "where it panicked")
		require.Contains(t, b.String(), "work again")
	})
}

type locked struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestRenewThatIgnoresItsEndIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var b strings.Builder
		w := New(Config{
			Renew: func(context.Context, Group, []Renewal) ([]Result, error) {
				time.Sleep(time.Hour)
				return nil, nil
			},
			Logger: slog.New(slog.NewTextHandler(locked{&mu, &b}, nil)),
		})
		defer closed(w)
		w.Watch(spec("a", nil))
		sleep(lease)
		mu.Lock()
		defer mu.Unlock()
		require.Contains(t, b.String(), "did not return")
	})
}
