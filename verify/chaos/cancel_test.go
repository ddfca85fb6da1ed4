//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// cancelRows: nobody answers, and the context of the caller ends.
func (p primitive) cancelRows() []row {
	return []row{{
		name:   p.name + ": calls in a black hole",
		target: "Lock and Unlock return ≤ 50 ms after their context ends, 2,000 of 2,000",
		timed:  true,
		run:    func(c *course) { c.calls(p) },
	}}
}

// calls makes the same number of Lock and Unlock calls at once, in a black hole. It ends their
// contexts, half of them by a deadline.
func (c *course) calls(p primitive) {
	const together = 40
	server := c.stand()
	var mu sync.Mutex
	var late []time.Duration
	unread, answered, swallowed := 0, 0, 0
	for done := 0; done < c.of(2000, 2*together); {
		s := server.apart()
		ends := s.inBlackHole(p, together)
		done += len(ends)
		var g sync.WaitGroup
		for i, call := range ends {
			g.Go(func() {
				d := 50*time.Millisecond + rand.N(200*time.Millisecond)
				ctx, cancel := context.WithTimeout(context.Background(), d)
				if i/4%2 == 0 { // the same number of each kind of call
					cancel()
					ctx, cancel = context.WithCancel(context.Background())
					time.AfterFunc(d, cancel)
				}
				defer cancel()
				end := time.Now().Add(d) // or slightly earlier
				err := call(ctx)
				over := time.Since(end)
				<-ctx.Done() // a timer of the library's own may fire slightly earlier than that of ctx
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, ctx.Err()) && ctx.Err() != nil {
					unread++
				} else {
					answered++
				}
				late = append(late, over)
			})
		}
		g.Wait()
		swallowed += s.proxy.Discarded()
		s.over()
	}
	c.bit("commands swallowed", swallowed)
	c.bit("calls ended by their context", unread)
	c.forbid("calls answered all the same", answered)
	c.within("late", late, 100, 50*time.Millisecond)
}

// inBlackHole makes calls that nobody will answer: Lock of free locks, Lock of locks that others
// hold, and Unlock.
func (s *stand) inBlackHole(p primitive, together int) (calls []func(context.Context) error) {
	s.Helper()
	locks := s.client(redlatch.WithLease(time.Minute))
	other := s.aside(redlatch.WithLease(time.Minute))
	for i := range together {
		name := redistest.Name(s)
		lock := func(ctx context.Context) error { _, err := p.lock(locks, name).Lock(ctx); return err }
		h, err := p.lock([]*redlatch.Client{locks, other}[i%2], name).Lock(context.Background())
		switch {
		case err != nil:
			s.miss("before any fault: %v", err)
		case i%4 == 0: // a free lock
			s.ifBroken(h.Unlock(context.Background()))
			calls = append(calls, lock)
		case i%2 == 0:
			calls = append(calls, h.Unlock)
		default:
			calls = append(calls, lock)
		}
	}
	s.proxy.BlackHole(redistest.AllTraffic)
	return calls
}
