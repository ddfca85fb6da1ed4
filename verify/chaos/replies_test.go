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
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/lua"
)

// operation is a command of a primitive. run provokes it once on a free lock, and leaves the lock
// free. The proxy loses the replies that victim.lose selects.
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

	locks *redlatch.Client
	l     locker // for a mutex
	lose  func() // loses the replies of the next commands of the operation
}

// replyRows: Redis ran a command, and its reply was lost, one to three times in a row.
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

const replyHeartbeat = 600 * time.Millisecond

func (c *course) cutReplies(p primitive, op operation) {
	s := c.stand()
	var todo, drifts, refusals, cut atomic.Int64
	todo.Store(int64(c.of(500, 3)))
	var g sync.WaitGroup
	for i := range 8 {
		v := &victim{stand: s, p: p, name: fmt.Sprintf("cut %d", i)}
		v.locks = s.client(redlatch.WithLease(time.Minute), redlatch.WithRenewInterval(10*time.Millisecond), redlatch.WithHeartbeat(replyHeartbeat))
		if p.of != nil {
			v.l = p.of(v.locks, v.name)
		}
		var armed atomic.Int64
		v.lose = func() { armed.Store(1 + rand.Int64N(3)) }
		mine := redistest.AllOf(op.match, redistest.Containing(v.name))
		fault := s.proxy.Inject(redistest.Rule{Action: redistest.CutReply(), Match: func(cmd []string) bool {
			return armed.Load() > 0 && mine(cmd) && armed.Add(-1) >= 0
		}})
		g.Go(func() {
			c.ifBroken(v.warm()) // loads the script, and lets the client learn the server's clock
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

// warm runs every command once, so that Redis does not answer NOSCRIPT later.
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

var errDrift = errors.New("redis has not what it answered")

// has compares the state in Redis with what the client returned. All waiters have been served or
// have left by then. A nil hold means that the lock is free.
func (v *victim) has(h *lock.Hold, holds int) error {
	fields, err := v.server.Control().HGetAll(context.Background(), v.name).Result()
	if err != nil {
		return err
	}
	delete(fields, "redlatch:about")
	want := map[string]string{}
	if h != nil {
		want[h.ID()] = strconv.Itoa(holds)
	}
	if fmt.Sprint(fields) != fmt.Sprint(want) {
		return fmt.Errorf("%w: %v, want %v", errDrift, fields, want)
	}
	if v.queued(v.name) != 0 {
		return fmt.Errorf("%w: somebody waits", errDrift)
	}
	return nil
}

// steps runs all steps in order, up to the first error.
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
	return v.held(h, err, then)
}

func (v *victim) held(h *lock.Hold, err error, then func(h *lock.Hold) error) error {
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
	return func(cmd []string) bool { return lua.ScriptName(cmd) == script }
}

var (
	acquires = func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[8] == "1" }
	reenters = func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[8] != "1" }
	counts   = func(cmd []string) bool { return runs("mutex/release")(cmd) && cmd[6] != "0" }
	releases = func(cmd []string) bool { return runs("mutex/release")(cmd) && cmd[6] == "0" }
	transfer = runs("mutex/transfer")
	renewals = anyOf(runs("mutex/renew"), keepsPermits)
	joins    = runs("fair/join")
	beats    = anyOf(runs("fair/beat"), beatsPermits)
	leaves   = runs("fair/leave")
)

var mutexOperations = []operation{
	{"acquire", acquires, acquiring},
	{"re-entry", reenters, reentering},
	{"inner release", counts, leavingOne},
	{"last release", releases, leavingAll},
	{"transfer", transfer, handingOver},
	{"renewal", renewals, renewing},
}

var fairOperations = []operation{
	{"acquire", joins, acquiring},
	{"re-entry", reenters, reentering},
	{"inner release", counts, leavingOne},
	{"last release", leaves, leavingAll},
	{"release to the next", leaves, handingOver},
	{"place given up", leaves, givingUp},
	{"heartbeat", beats, beating},
	{"renewal", renewals, renewing},
}

// acquiring takes a free lock. It does not wait for the lock. If it did, it would wait until the
// end of a grant that it does not know of, and that blocks the next attempt.
func acquiring(v *victim) error {
	v.lose()
	h, err := v.l.TryLock(context.Background())
	return v.held(h, err, func(h *lock.Hold) error { return v.has(h, 1) })
}

func reentering(v *victim) error {
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
}

func leavingOne(v *victim) error {
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
}

func leavingAll(v *victim) error {
	return v.holding(func(*lock.Hold) error { v.lose(); return nil })
}

type granted struct {
	h   *lock.Hold
	err error
}

// behind starts another Lock call. The caller's next command must come after it, or no fault bites,
// so behind waits for a moment.
func (v *victim) behind(ctx context.Context) <-chan granted {
	next := make(chan granted, 1)
	go func() {
		h, err := v.l.Lock(ctx)
		next <- granted{h, err}
	}()
	time.Sleep(time.Millisecond)
	return next
}

// handing releases the lock to a waiter. It calls before while somebody waits.
func (v *victim) handing(before func()) error {
	first, err := v.l.Lock(context.Background())
	if err != nil {
		return err
	}
	next := v.behind(context.Background())
	before()
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
}

func handingOver(v *victim) error { return v.handing(v.lose) }

// beating waits for a heartbeat before the release.
func beating(v *victim) error {
	return v.handing(func() { v.lose(); time.Sleep(replyHeartbeat / 2) })
}

// givingUp lets a waiter leave the queue before its grant.
func givingUp(v *victim) error {
	return v.holding(func(h *lock.Hold) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		next := v.behind(ctx)
		if !v.soon(time.Second, func() bool { return v.queued(v.name) == 1 }) {
			return fmt.Errorf("%w: nobody waits", errDrift)
		}
		v.lose()
		cancel()
		if got := <-next; got.err == nil {
			return fmt.Errorf("%w: granted twice", errDrift)
		}
		// The waiter gives up its place in the background.
		v.soon(time.Second, func() bool { return v.queued(v.name) == 0 })
		return v.has(h, 1)
	})
}

// soon waits until so returns true, but no longer than d.
func (s *stand) soon(d time.Duration, so func() bool) bool {
	for end := time.Now().Add(d); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func renewing(v *victim) error {
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
}
