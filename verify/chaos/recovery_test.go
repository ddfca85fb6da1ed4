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
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// recoveryRows: how long others wait for something that does not come.
func (p primitive) recoveryRows() []row {
	return []row{{
		name:   p.name + ": holder killed",
		target: "p99 of 300 waiters served within lease + 100 ms",
		timed:  true,
		run:    func(c *course) { c.killedHolders(p) },
	}, {
		name:   p.name + ": wake lost",
		target: "300 of 300 waiters served within the poll bound",
		timed:  true,
		run:    func(c *course) { c.lostWakes(p) },
	}}
}

const atOnce = 10 // waiters of one event

// killedHolders kills processes that hold locks while others wait for these locks.
func (c *course) killedHolders(p primitive) {
	const lease = time.Second
	s := c.stand()
	var took []time.Duration
	for round := range (c.of(300, 20) + atOnce - 1) / atOnce {
		names := make([]string, atOnce)
		for i := range names {
			names[i] = fmt.Sprintf("killed %d %d", round, i)
		}
		w := c.worker(plan{Do: "hold", URL: s.server.URL(), Primitive: p.name, Names: names, Lease: lease})
		w.await("held")
		waiting := s.wait(p, s.aside(redlatch.WithLease(lease)), names)
		time.Sleep(rand.N(lease)) // at some point between two renewals
		killed := time.Now()
		w.kill()
		took = append(took, waiting(slices.Repeat([]time.Time{killed}, len(names)))...)
	}
	c.bit("holds of killed processes", len(took))
	c.within("served after", took, 99, lease+100*time.Millisecond)
}

// lostWakes swallows the message that a lock is free.
func (c *course) lostWakes(p primitive) {
	const bound = 500 * time.Millisecond
	server := c.stand()
	holder := server.aside(redlatch.WithLease(time.Minute))
	var took []time.Duration
	swallowed := 0
	for range (c.of(300, 20) + atOnce - 1) / atOnce {
		s := server.apart()
		names := make([]string, atOnce)
		var unlock []func(context.Context) error
		for i := range names {
			names[i] = redistest.Name(c)
			h, err := p.lock(holder, names[i]).Lock(context.Background())
			if err != nil {
				c.miss("before any fault: %v", err)
				return
			}
			unlock = append(unlock, h.Unlock)
		}
		waiting := s.wait(p, s.client(redlatch.WithLease(time.Minute), redlatch.WithPollInterval(bound), redlatch.WithHeartbeat(bound*27/10)), names)
		s.waited(p, names)
		s.proxy.BlackHole(redistest.SubscriberTraffic)
		time.Sleep(rand.N(bound)) // at some point between two polls
		freed := make([]time.Time, len(names))
		for i, u := range unlock {
			freed[i] = time.Now()
			c.ifBroken(u(context.Background()))
		}
		took = append(took, waiting(freed)...)
		swallowed += s.proxy.Unreceived()
		s.over()
	}
	c.bit("messages swallowed", swallowed)
	if swallowed < len(took) {
		c.miss("only %d messages of %d were swallowed", swallowed, len(took))
	}
	c.within("served after", took, 100, bound)
}

// waited returns when somebody waits for each of the names.
func (s *stand) waited(p primitive, names []string) {
	s.Helper()
	for range 2000 {
		if p.waitedFor(s, names) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.Fatal("nobody waits")
}

// listenedFor is for waiters that listen to a channel of the lock.
func (s *stand) listenedFor(names []string) bool { return s.channels() >= len(names) }

// queuedFor is for waiters in a queue, whose client listens.
func (s *stand) queuedFor(names []string) bool {
	return s.channels() > 0 && !slices.ContainsFunc(names, func(name string) bool { return s.queued(name) == 0 })
}

// queued is the length of the queue for a lock.
func (s *stand) queued(name string) int {
	return int(s.server.Control().ZCard(context.Background(), key.ForMutex(name).Queue).Val())
}

// wait starts a waiter for each of the names, and returns when all calls have begun. The returned
// function waits until all are served. For each name it returns the time from the given instant
// until then.
func (s *stand) wait(p primitive, locks *redlatch.Client, names []string) func(since []time.Time) []time.Duration {
	var began, served sync.WaitGroup
	at := make([]time.Time, len(names))
	for i, name := range names {
		began.Add(1)
		served.Go(func() {
			began.Done()
			h, err := p.lock(locks, name).Lock(context.Background())
			at[i] = time.Now()
			if err != nil {
				s.miss("a waiter: %v", err)
				return
			}
			s.ifBroken(h.Unlock(context.Background()))
		})
	}
	began.Wait()
	return func(since []time.Time) (took []time.Duration) {
		served.Wait()
		for i, t := range at {
			if t.Before(since[i]) {
				s.miss("a waiter was served before the lock was free")
			}
			took = append(took, t.Sub(since[i]))
		}
		return took
	}
}
