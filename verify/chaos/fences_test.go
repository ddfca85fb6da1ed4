//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/lockerr"
)

// fenceRows: Redis loses what it knows of fences, again and again.
func (p primitive) fenceRows() []row {
	return []row{{
		name:     p.name + ": fences",
		target:   "0 go back in 100,000 grants with 50 restarts without persistence and 20 FLUSHALLs",
		anywhere: true,
		run:      func(c *course) { c.fences(p) },
	}}
}

func (c *course) fences(p primitive) {
	s := c.stand()
	want, restarts, flushes := c.of(100_000, 500), c.of(50, 2), c.of(20, 1)
	rec := history.InMemory(history.Monotonic)
	var wrote [4]*protected
	for n := range wrote {
		wrote[n] = p.protected()
	}
	var given counter
	var g sync.WaitGroup
	for i, locks := range s.clients(4, redlatch.WithLease(2*time.Second), redlatch.WithPollInterval(poll)) {
		for j := range 4 {
			g.Go(func() {
				for n := 0; given.below(want); n++ {
					name := fmt.Sprintf("fence %d", n%4) // clients pass each lock around
					given.add(c.grant(rec, p.of(locks, name), wrote[n%4], history.Op{
						Client: 4*i + j, Name: name, Owner: fmt.Sprintf("%d.%d", 4*i+j, n), Kind: history.Acquire,
					}))
				}
			})
		}
	}
	blows := restarts + flushes
	for n := range blows {
		given.await(want * n / blows) // spread over all grants
		if n*flushes/blows != (n+1)*flushes/blows {
			s.operate("FLUSHALL")
			c.bit("FLUSHALL", 1)
		} else {
			s.server.Restart()
			c.bit("restarts", 1)
		}
	}
	g.Wait()
	h := rec.History()
	for _, part := range h.ByName() {
		c.never("fences gone back", check.Fences(part.Ops))
	}
	for _, resource := range wrote {
		resource.judge(c)
	}
	c.enough("grants", grants(h.Ops), want)
}

// grant acquires a lock, writes to the resources that it protects, and releases it. It returns the
// number of grants.
func (c *course) grant(rec *history.Recorder, l locker, wrote *protected, op history.Op) int {
	call := rec.Begin(op)
	h, err := l.Lock(context.Background())
	call.End(func(op *history.Op) {
		if err == nil {
			op.Outcome, op.Fence, op.Acquisition = history.Done, h.Fence(), h.ID()
		}
	})
	if err != nil {
		c.miss("lock: %v", err)
		return 1 // or it would retry for ever
	}
	for _, r := range wrote.resources() {
		_ = check.Increment(context.Background(), r, h.Fence(), func() {}) // the resource counts the writes that it refuses
	}
	if err := h.Unlock(context.Background()); err != nil && !errors.Is(err, lockerr.ErrLost) {
		c.miss("unlock: %v", err)
	}
	return 1
}

// counter is a number that other goroutines can wait for.
type counter struct {
	mu sync.Mutex
	n  int
}

func (k *counter) add(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n += n
}

func (k *counter) below(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n < n
}

func (k *counter) await(n int) {
	for k.below(n) {
		time.Sleep(time.Millisecond)
	}
}
