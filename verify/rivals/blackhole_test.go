package rivals_test

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

var blackHoleRows = []row{
	{"Lock with a context of 100 ms in a black hole", (*course).impatient},
}

// within is implemented by a library with another Lock call for a context that bounds the call.
type within interface {
	LockWithin(ctx context.Context) (workload.Hold, error)
}

// impatient requests free locks over connections that have fallen silent. Each client makes ten
// requests at a time. With more, some would wait in go-redis for a connection, and would return in
// time for want of one.
func (c *course) impatient() {
	const each = 10
	c.inGroups(200, each, 5, func() {
		p := c.party()
		var g sync.WaitGroup
		for range each {
			g.Go(func() { c.cycle(p, redistest.Name(c)) })
		}
		g.Wait()
		p.proxy.BlackHole(redistest.AllTraffic)
		for range each {
			g.Go(func() {
				l := p.lock(redistest.Name(c))
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				take := l.Lock
				if w, ok := l.(within); ok {
					take = w.LockWithin
				}
				end, _ := ctx.Deadline()
				_, err := take(ctx)
				late := time.Since(end)
				if err == nil {
					c.count("locked all the same", 1)
					return
				}
				c.took("late", late)
				if late > 50*time.Millisecond {
					c.count("more than 50 ms late", 1)
				} else {
					c.count("more than 50 ms late", 0)
				}
			})
		}
		g.Wait()
		c.bit("commands swallowed", p.proxy.Discarded())
		p.proxy.Down() // nothing waits any longer
	})
}
