//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/lockerr"
)

// leftoverRows: what remains after much work and many faults.
func (p primitive) leftoverRows() []row {
	return []row{{
		name:     p.name + ": left over",
		target:   "goroutines, connections, subscriptions, keys back to the start after 100,000 cycles, 1,000 cancels, 100 reconnects",
		anywhere: true,
		alone:    true,
		run:      func(c *course) { c.leftOver(p) },
	}}
}

// leftOver lets two clients contend for locks while all connections are cut again and again. Some
// of the calls give up.
func (c *course) leftOver(p primitive) {
	s := c.stand()
	goroutines, connections := runtime.NumGoroutine(), s.counted("clients", "connected_clients")
	var locks []workload.Lock
	for range 2 {
		client := s.client(redlatch.WithLease(time.Minute), redlatch.WithPollInterval(poll))
		for i := range 16 {
			locks = append(locks, p.lock(client, fmt.Sprintf("left %d", i%8)))
		}
	}
	var cycles, cancels atomic.Int64
	var g sync.WaitGroup
	contend := func(wantCycles, wantCancels int) {
		for _, l := range locks {
			g.Go(func() {
				for int(cycles.Load()) < wantCycles || int(cancels.Load()) < wantCancels {
					one, given := c.cycle(l, rand.N(20) == 0)
					cycles.Add(int64(one))
					cancels.Add(int64(given))
				}
			})
		}
	}
	// idle counts the goroutines of a client that has worked, and that nobody uses now. It does not
	// count those of the proxy, which has three for each connection.
	idle := func() int { return runtime.NumGoroutine() - 3*s.proxy.Open() }
	contend(100, 1)
	g.Wait()
	for i := range 2 { // each client waits once, and so has what it needs for that
		s.settled("subscriptions", 0, s.channels)
		h, err := locks[16*i].Lock(context.Background())
		c.ifBroken(err)
		g.Go(func() { c.cycle(locks[16-16*i], false) })
		for s.channels() == 0 {
			time.Sleep(time.Millisecond)
		}
		c.ifBroken(h.Unlock(context.Background()))
		g.Wait()
	}
	s.settled("subscriptions", 0, s.channels)
	unused := idle()
	wantCycles, wantCancels := c.of(100_000, 200), c.of(1000, 20)
	reconnects := c.of(100, 2)
	contend(wantCycles, wantCancels)
	cut := 0
	for range reconnects {
		before := s.proxy.Accepted()
		s.proxy.KillAll()
		for s.proxy.Accepted() == before {
			time.Sleep(time.Millisecond)
		}
		cut++
		// The cuts are spread over the cycles, and do not wait for long. A subscriber that is cut
		// again and again pauses for seconds, and queues then proceed by their heartbeats.
		for end := time.Now().Add(time.Second / 2); int(cycles.Load()) < wantCycles*cut/reconnects && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	g.Wait()
	c.bit("cancelled waits", int(cancels.Load()))
	c.bit("times all connections were cut", cut)
	c.enough("cycles", int(cycles.Load()), wantCycles)
	s.settled("subscriptions", 0, s.channels)
	s.settled("keys", 0, func() int { return s.lockKeys("") })
	s.settled("goroutines of clients in use", unused, idle)
	s.end()
	s.settled("goroutines", goroutines, runtime.NumGoroutine)
	s.settled("connections", connections, func() int { return s.counted("clients", "connected_clients") })
}

// cycle locks and unlocks, or gives up.
func (c *course) cycle(l workload.Lock, hasty bool) (cycles, cancels int) {
	ctx := context.Background()
	if hasty {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(rand.N(5*time.Millisecond), cancel).Stop()
	}
	h, err := l.Lock(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, 1
	case err != nil:
		c.miss("lock: %v", err)
	default:
		for err = h.Unlock(context.Background()); errors.Is(err, lockerr.ErrIndeterminate) || errors.Is(err, lockerr.ErrUnavailable); {
			err = h.Unlock(context.Background())
		}
		c.ifBroken(err)
	}
	return 1, 0
}

// settled waits until a number is back at its start, and shows the difference that remains. Work in
// the background takes its time to end.
func (s *stand) settled(what string, start int, now func() int) {
	n := now()
	for end := time.Now().Add(10 * time.Second); n > start && time.Now().Before(end); n = now() {
		time.Sleep(10 * time.Millisecond)
	}
	s.forbid(what+" left", max(n-start, 0))
}

func (s *stand) channels() int {
	channels, err := s.server.Control().PubSubChannels(context.Background(), "*").Result()
	s.ifBroken(err)
	return len(channels)
}

// lockKeys counts the keys of locks with such names. It does not count last fences and limits,
// which Redis keeps. If the server does not answer, the result is 1.
func (s *stand) lockKeys(names string) (n int) {
	keys, err := s.server.Control().Keys(context.Background(), "*"+names+"*").Result()
	if err != nil {
		return 1
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "redisson_lock_token:") && !strings.HasPrefix(key, "redlatch:permits:") {
			n++
		}
	}
	return n
}
