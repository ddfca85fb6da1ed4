package rivals_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

var lossRows = []row{
	{"FLUSHALL while held", func(c *course) {
		c.forget("locks flushed", func() {
			if err := c.server.Control().FlushAll(context.Background()).Err(); err != nil {
				c.Error(err)
			}
		})
	}},
	{"restart without persistence while held", func(c *course) { c.forget("locks gone", c.server.Restart) }},
}

// forget makes Redis forget the locks of several holders at the same time. It tests how soon each
// holder is notified, and whether the next grant has a larger token.
func (c *course) forget(bites string, lose func()) {
	c.unless(c.lib.signal, "has no signal; notified means that a renewal by hand said so")
	c.unless(c.lib.token, "has no token")
	const holders = 10
	c.inGroups(30, holders, 1, func() {
		var names []string
		var holds []workload.Hold
		for range holders {
			p, name := c.party(), redistest.Name(c)
			names, holds = append(names, name), append(holds, c.take(p, name))
			time.Sleep(rand.N(c.size.lease / 15))
		}
		before := c.held(names)
		began := time.Now()
		lose()
		c.bit(bites, before-c.held(names))
		var g sync.WaitGroup
		for i, h := range holds {
			g.Go(func() { c.notice(h, began) })
			g.Go(func() { c.token(names[i], h) })
		}
		g.Wait()
	})
}

// held counts the locks that are held.
func (c *course) held(names []string) (n int) {
	for _, name := range names {
		if _, held := c.remaining(name); held {
			n++
		}
	}
	return n
}

func (c *course) notice(h workload.Hold, began time.Time) {
	select {
	case <-h.Lost():
		c.count("notified", 1)
		c.took("notified after", time.Since(began))
	case <-time.After(3 * c.size.lease):
		c.count("not notified within three leases", 1)
	}
}

// token lets another client take the lock that Redis forgot.
func (c *course) token(name string, old workload.Hold) {
	if !c.lib.token {
		return
	}
	next := c.take(c.party(), name)
	if next.Fence() > old.Fence() {
		c.count("next tokens larger", 1)
	} else {
		c.count("next tokens not larger", 1)
	}
	c.unlock(next)
}
