package rivals_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

var waitingRows = []row{
	{"release to the next waiter", (*course).handOver},
	{"release while the waiter's connections are down for 200 ms", (*course).missedRelease},
	{"commands of one waiter", (*course).waitingCost},
}

// waiter waits for a lock in a goroutine of its own.
type waiter struct {
	p    *party
	done chan outcome
}

type outcome struct {
	hold workload.Hold
	err  error
	at   time.Time
}

// wait begins to wait. It returns when the waiter has asked, and has had its time to fall asleep.
func (c *course) wait(name string) *waiter {
	w := &waiter{p: c.party(), done: make(chan outcome, 1)}
	w.p.proxy.ResetCounts()
	go func() {
		h, err := lockWithin(w.p.lock(name), c.size.waitLimit)
		w.done <- outcome{h, err, time.Now()}
	}()
	for w.p.proxy.Forwarded() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(300*time.Millisecond + rand.N(250*time.Millisecond))
	return w
}

func (c *course) handOver() {
	c.each(100, 4, func() {
		p, name := c.party(), redistest.Name(c)
		h := c.take(p, name)
		w := c.wait(name)
		c.bit("waiters that had asked in vain", min(1, w.p.proxy.Forwarded()))
		began := time.Now()
		c.unlock(h)
		c.served("Unlock called to Lock returned", w, began)
	})
}

func (c *course) served(what string, w *waiter, since time.Time) {
	o := <-w.done
	switch {
	case o.err != nil && o.at.Sub(since) > c.size.waitLimit/2:
		c.count(fmt.Sprintf("not served, the lock being free, in the rest of %v", c.size.waitLimit), 1)
		return
	case o.err != nil:
		c.count("given up with an error", 1)
		return
	}
	c.count("served", 1)
	c.took(what, o.at.Sub(since))
	c.unlock(o.hold)
}

// missedRelease makes the release happen while the waiter can get no message.
func (c *course) missedRelease() {
	c.each(20, 10, func() {
		p, name := c.party(), redistest.Name(c)
		h := c.take(p, name)
		w := c.wait(name)
		before := w.p.proxy.Open()
		w.p.proxy.Down()
		c.bit("connections cut", before-w.p.proxy.Open())
		c.unlock(h)
		time.Sleep(200 * time.Millisecond)
		w.p.proxy.Up()
		c.served("connections back to Lock returned", w, time.Now())
	})
}

// waitingCost counts the commands of a waiter while the holder keeps the lock.
func (c *course) waitingCost() {
	span := 5 * time.Second
	if c.size.together {
		span = time.Second
	}
	var sent atomic.Int64
	c.each(10, 10, func() {
		p, name := c.party(), redistest.Name(c)
		h := c.take(p, name)
		w := c.wait(name)
		w.p.proxy.ResetCounts()
		time.Sleep(span)
		sent.Add(int64(w.p.proxy.Forwarded()))
		if _, held := c.remaining(name); held {
			c.bit("waits in full", 1)
		}
		c.unlock(h)
		if o := <-w.done; o.err == nil {
			c.unlock(o.hold)
		}
	})
	c.note(fmt.Sprintf("%.1f in %v, from half a second on", float64(sent.Load())/float64(c.trials), span))
}
