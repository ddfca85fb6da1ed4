//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// lossRows: the holder is notified before the lease ends on the server, whatever prevents the
// confirmation of its renewals.
func (p primitive) lossRows() []row {
	nothing := func(*stand) (slow *redistest.Fault) { return nil }
	swallow := redistest.Rule{Match: renewals, Action: redistest.Swallow()}
	var rows []row
	for _, cut := range []struct {
		name   string
		before func(s *stand) (slow *redistest.Fault) // while clients take the locks
		sever  func(s *stand)
	}{
		{"all traffic black-holed", nothing, func(s *stand) { s.proxy.BlackHole(redistest.AllTraffic) }},
		{"renewals swallowed", nothing, func(s *stand) { s.proxy.Inject(swallow) }},
		{"connections refused", nothing, func(s *stand) { s.proxy.Down() }},
		{"replies of renewals cut", nothing, func(s *stand) {
			s.proxy.Inject(redistest.Rule{Match: renewals, Action: redistest.CutReply()})
		}},
		{"all replies slow", func(s *stand) *redistest.Fault { // by more than the margin, and less than the time after which a client gives up a connection
			return s.proxy.Inject(redistest.Rule{Match: scripts, Action: redistest.DelayReply(lossLease * 15 / 100)})
		}, func(s *stand) { s.proxy.BlackHole(redistest.AllTraffic) }},
	} {
		rows = append(rows, row{
			name:   fmt.Sprintf("%s: notified of the loss, %s", p.name, cut.name),
			target: "Lost before the server's lease ends, 500 of 500",
			timed:  true,
			run:    func(c *course) { c.notifiedInTime(p, cut.before, cut.sever) },
		})
	}
	return append(rows, row{
		name:   p.name + ": notified of the loss, key deleted",
		target: "p99 of 500 ≤ renewal interval + 50 ms",
		timed:  true,
		run:    func(c *course) { c.notifiedOfDeletion(p) },
	})
}

const lossLease = time.Second

// notifiedInTime cuts holders off from the server. When a holder is notified, the test asks the
// server, past the fault, how much of the lease is left. The question takes some time, so the real
// lead is longer than the measured one.
func (c *course) notifiedInTime(p primitive, before func(*stand) *redistest.Fault, sever func(*stand)) {
	runs := c.of(500, 20)
	leads := leads{c: c}
	server := c.stand()
	for began := 0; began < runs; began += 20 {
		s := server.apart()
		slow := before(s)
		locks := s.client(redlatch.WithLease(lossLease))
		look := s.server.Client(s.T)
		_ = look.Ping(context.Background()) // connects
		var taken, notified sync.WaitGroup
		for range 20 {
			taken.Add(1)
			notified.Go(func() {
				name := redistest.Name(c)
				h, err := p.lock(locks, name).Lock(context.Background())
				c.ifBroken(err)
				taken.Done()
				if err == nil && s.lost(h) {
					leads.add(p.left(look, name, h))
				}
			})
		}
		taken.Wait()
		time.Sleep(rand.N(lossLease)) // at some point between two renewals
		sever(s)
		notified.Wait()
		if slow != nil {
			c.bit("replies delayed", slow.Bites())
		}
		s.over()
	}
	c.bit("holds lost", len(leads.all)+leads.late)
	c.enough("notified in time", len(leads.all), runs)
	c.forbid("notified late", leads.late)
	if len(leads.all) > 0 {
		c.figure("lead least %v, p1 %v, median %v (lease %v)",
			slices.Min(leads.all), percentile(leads.all, 1), percentile(leads.all, 50), lossLease)
	}
}

// leads has the time that was left of each lease when its holder was notified of the loss.
type leads struct {
	c    *course
	mu   sync.Mutex
	all  []time.Duration
	late int // number of leases that had ended, or whose rest is unknown
}

func (l *leads) add(left time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c.ifBroken(err); err != nil || left <= 0 {
		l.late++
		return
	}
	l.all = append(l.all, left)
}

// lost waits for the loss of a hold. The target is missed if the loss takes too long.
func (c *course) lost(h workload.Hold) bool {
	select {
	case <-h.Lost():
		return true
	case <-time.After(10 * lossLease):
		c.forbid("never notified", 1)
		return false
	}
}

// notifiedOfDeletion deletes the lock of a holder.
func (c *course) notifiedOfDeletion(p primitive) {
	const every = 300 * time.Millisecond
	s := c.stand()
	locks := s.client(redlatch.WithLease(lossLease), redlatch.WithRenewInterval(every))
	var mu sync.Mutex
	var took []time.Duration
	var g sync.WaitGroup
	runs := c.of(500, 20)
	for i := range 10 {
		g.Go(func() {
			for n := range (runs + 9) / 10 {
				name := fmt.Sprintf("deleted %d %d", i, n)
				h, err := p.lock(locks, name).Lock(context.Background())
				if err != nil {
					c.miss("before any fault: %v", err)
					return
				}
				time.Sleep(rand.N(every))
				gone, _ := s.server.Control().Del(context.Background(), p.key(name)).Result()
				deleted := time.Now()
				c.bit("locks deleted", int(gone))
				if !s.lost(h) {
					return
				}
				mu.Lock()
				took = append(took, time.Since(deleted))
				mu.Unlock()
			}
		})
	}
	g.Wait()
	c.within("notified after", took, 99, every+50*time.Millisecond)
}

// percentile needs at least one duration; 100 is the longest.
func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// within demands that a percentile is not longer than most, and shows it.
func (c *course) within(what string, all []time.Duration, p int, most time.Duration) {
	if len(all) == 0 {
		c.miss("nothing measured")
		return
	}
	got := percentile(all, p)
	c.figure("%s: median %s, p%d %s, longest %s of %d (bound %v)", what,
		ms(percentile(all, 50)), p, ms(got), ms(percentile(all, 100)), len(all), most)
	if got > most {
		c.miss("%s: p%d %s, more than %v", what, p, ms(got), most)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
