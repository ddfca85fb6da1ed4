//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// operation is a command of a primitive. run provokes it once on a free lock, with
// the replies lost that victim.lose asks for, and leaves the lock free.
type operation struct {
	name  string
	match func(cmd []string) bool
	run   func(v *victim) error
}

// victim is one client whose replies are lost.
type victim struct {
	*stand
	p    primitive
	name string
	l    locker
	lose func() // the replies of the next commands of the operation
}

// replyRows: a command that was executed, and whose reply was lost, one to three
// times in a row.
func (p primitive) replyRows() (rows []row) {
	for _, op := range p.operations {
		rows = append(rows, row{
			name:     fmt.Sprintf("%s: replies cut, %s", p.name, op.name),
			target:   "500 cut: no drift, no ghost hold, no false refusal",
			anywhere: true,
			run:      func(c *course) { c.cutReplies(p, op) },
		})
	}
	return rows
}

func (c *course) cutReplies(p primitive, op operation) {
	s := c.stand()
	var todo, drifts, refusals, cut atomic.Int64
	todo.Store(int64(c.of(500, 3)))
	var g sync.WaitGroup
	for i := range 8 {
		v := &victim{stand: s, p: p, name: fmt.Sprintf("cut %d", i)}
		v.l = p.of(s.client(redlatch.WithLease(time.Minute), redlatch.WithRenewal(10*time.Millisecond)), v.name)
		var armed atomic.Int64
		v.lose = func() { armed.Store(1 + rand.Int64N(3)) }
		mine := redistest.AllOf(op.match, redistest.Containing(v.name))
		fault := s.proxy.Inject(redistest.Rule{Action: redistest.CutReply(), Match: func(cmd []string) bool {
			return armed.Load() > 0 && mine(cmd) && armed.Add(-1) >= 0
		}})
		g.Go(func() {
			c.ifBroken(v.warm()) // loads the script, and the server's clock is learned
			for todo.Load() > 0 {
				before := fault.Bites()
				switch err := op.run(v); {
				case errors.Is(err, errDrift):
					drifts.Add(1)
					c.miss("%v", err)
				case err != nil:
					refusals.Add(1)
					c.miss("%v", err)
				}
				armed.Store(0)
				cut.Add(int64(fault.Bites() - before))
				todo.Add(int64(before - fault.Bites()))
			}
		})
	}
	g.Wait()
	c.bit("replies cut", int(cut.Load()))
	c.enough("cut", int(cut.Load()), c.of(500, 3))
	c.forbid("drifts or ghosts", int(drifts.Load()))
	c.forbid("false refusals", int(refusals.Load()))
}

// warm runs every command once, so that none is answered with NOSCRIPT later.
func (v *victim) warm() error {
	for _, op := range v.p.operations {
		w := *v
		w.lose = func() {}
		if err := op.run(&w); err != nil {
			return fmt.Errorf("before any fault: %s: %w", op.name, err)
		}
	}
	return nil
}

func (c *course) ifBroken(err error) {
	if err != nil {
		c.miss("%v", err)
	}
}

var errDrift = errors.New("redis has not what the client was told")

// has compares what Redis has with what the client was told; nil is free.
func (v *victim) has(h *lock.Hold, holds int) error {
	fields, err := v.server.Control().HGetAll(context.Background(), v.name).Result()
	if err != nil {
		return err
	}
	delete(fields, "redlatch:about")
	want := map[string]string{}
	if h != nil {
		want[h.Acquisition()] = strconv.Itoa(holds)
	}
	if fmt.Sprint(fields) != fmt.Sprint(want) {
		return fmt.Errorf("%w: %v, want %v", errDrift, fields, want)
	}
	return nil
}

// steps runs one after the other, up to the first error.
func steps(all ...func() error) error {
	for i, step := range all {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

func (v *victim) holding(then func(h *lock.Hold) error) error {
	h, err := v.l.Lock(context.Background())
	if err != nil {
		return err
	}
	return steps(
		func() error { return then(h) },
		func() error { return h.Unlock(context.Background()) },
		func() error { return v.has(nil, 0) },
	)
}

// runs matches the commands of one script.
func runs(script string) func(cmd []string) bool {
	return func(cmd []string) bool { return lua.Runs(cmd) == script }
}

var (
	acquires = func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] == "1" }
	reenters = func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] != "1" }
	counts   = func(cmd []string) bool { return runs("mutex/release")(cmd) && cmd[5] != "0" }
	releases = func(cmd []string) bool { return runs("mutex/release")(cmd) && cmd[5] == "0" }
	transfer = runs("mutex/transfer")
	renewals = runs("mutex/renew")
)

var mutexOperations = []operation{
	{"acquire", acquires, func(v *victim) error {
		v.lose()
		return v.holding(func(h *lock.Hold) error { return v.has(h, 1) })
	}},
	{"re-entry", reenters, func(v *victim) error {
		return v.holding(func(outer *lock.Hold) error {
			v.lose()
			inner, err := v.l.Lock(outer.Context())
			if err != nil {
				return err
			}
			return steps(
				func() error { return v.has(outer, 2) },
				func() error { return inner.Unlock(context.Background()) },
			)
		})
	}},
	{"inner release", counts, func(v *victim) error {
		return v.holding(func(outer *lock.Hold) error {
			inner, err := v.l.Lock(outer.Context())
			if err != nil {
				return err
			}
			v.lose()
			return steps(
				func() error { return inner.Unlock(context.Background()) },
				func() error { return v.has(outer, 1) },
			)
		})
	}},
	{"last release", releases, func(v *victim) error {
		return v.holding(func(*lock.Hold) error { v.lose(); return nil })
	}},
	{"transfer", transfer, func(v *victim) error {
		type grant struct {
			h   *lock.Hold
			err error
		}
		next := make(chan grant, 1)
		first, err := v.l.Lock(context.Background())
		if err != nil {
			return err
		}
		go func() {
			h, err := v.l.Lock(context.Background())
			next <- grant{h, err}
		}()
		time.Sleep(time.Millisecond) // else it may come too late to be handed the lock: no bite
		v.lose()
		if err := first.Unlock(context.Background()); err != nil {
			return err
		}
		got := <-next
		if got.err != nil {
			return got.err
		}
		return steps(
			func() error { return v.has(got.h, 1) },
			func() error { return got.h.Unlock(context.Background()) },
			func() error { return v.has(nil, 0) },
		)
	}},
	{"renewal", renewals, func(v *victim) error {
		return v.holding(func(h *lock.Hold) error {
			v.lose()
			for trusted := h.TrustedUntil(); !h.TrustedUntil().After(trusted.Add(20 * time.Millisecond)); {
				select {
				case <-h.Lost():
					return context.Cause(h.Context())
				case <-time.After(time.Millisecond):
				}
			}
			return v.has(h, 1)
		})
	}},
}
