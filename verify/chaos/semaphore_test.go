//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
	"github.com/redlatch/redlatch/semaphore"
)

// permitLimit is the limit that all programs request.
const permitLimit = 3

var permits = primitive{
	name: "semaphore",
	permits: func(c *redlatch.Client, name string, options ...redlatch.LockOption) workload.Lock {
		return workload.Permits(c.Semaphore(name, permitLimit, options...)).Of(permitLimit)
	},
	linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.Permits(permitLimit))
	},
	whileLeasesEnd: func(ops []history.Op) error {
		return check.Linearizable(check.Grants(ops), check.Permits(permitLimit))
	},
	operations: permitOperations,
	waitedFor: func(s *stand, names []string) bool {
		return s.channels() > 0 && !slices.ContainsFunc(names, func(name string) bool {
			return s.server.Control().ZCard(context.Background(), key.ForSemaphore(name).Queue).Val() == 0
		})
	},
}

// permitRows returns the rows that do not need fences.
func (p primitive) permitRows() []row {
	return slices.Concat(
		p.historyRows(),
		p.expiryRows(),
		p.processRows(),
		p.replyRows(),
		p.lossRows(),
		p.recoveryRows(),
		p.cancelRows(),
		p.leftoverRows(),
		p.clusterRows(),
	)
}

// drawnPermits returns a plan with the given number of operations. It acquires one to three units,
// up to twice, and releases them. Some of the acquires wait, and others do not. Sometimes it
// resizes.
func drawnPermits(operations int) (plan []workload.Step) {
	short := func() time.Duration { return time.Millisecond + rand.N(20*time.Millisecond) }
	holds := 0 // if every acquire succeeds; a step without its permit does nothing
	for range operations {
		step := workload.Step{Units: 1 + rand.N(permitLimit)}
		switch r := rand.N(100); {
		case r < 2:
			step = workload.Step{Verb: workload.Resize, Units: []int{2, permitLimit, permitLimit, 5}[rand.N(4)]}
		case holds > 0 && r < 55, holds == 2:
			step = workload.Step{Verb: []workload.Verb{workload.Unlock, workload.UnlockFirst, workload.UnlockLate}[min(rand.N(12)/5, 2)]}
			holds--
		case r < 70:
			step.Verb = workload.Try
			holds++
		case r < 85:
			step.Verb, step.For = workload.Acquire, short()
			holds++
		case r < 93 || holds > 0: // a holder of units must not wait long for more units, because two may wait for each other
			step.Verb, step.For = workload.Cancel, short()
			holds++
		default:
			step.Verb, step.For = workload.Acquire, waitLimit
			holds++
		}
		plan = append(plan, step)
		if rand.N(10) == 0 {
			plan = append(plan, workload.Step{Verb: workload.Sleep, For: rand.N(2 * time.Millisecond)})
		}
	}
	return plan
}

// whole returns an error if units of a semaphore that nobody uses are lost, or if it has more units
// than its limit.
func whole(c *redlatch.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return workload.Whole(ctx, c.Semaphore(name, permitLimit), permitLimit)
}

// left is the time that is left of the lease of a hold on the server.
func (p primitive) left(look *redis.Client, name string, h workload.Hold) (time.Duration, error) {
	ctx := context.Background()
	if p.fenced() {
		return look.PTTL(ctx, name).Result()
	}
	now, err := look.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	end, err := look.ZScore(ctx, key.ForSemaphore(name).Permits, h.ID()+"#1").Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return time.UnixMilli(int64(end)).Sub(now), err
}

var (
	takesPermits  = runs("semaphore/acquire")
	givesPermits  = runs("semaphore/release")
	keepsPermits  = runs("semaphore/renew")
	beatsPermits  = runs("semaphore/beat")
	resizePermits = runs("semaphore/resize")
)

var permitOperations = []operation{
	{"acquire", takesPermits, func(v *victim) error {
		v.lose()
		p, err := v.semaphore().TryAcquire(context.Background(), permitLimit) // as in acquiring
		return v.kept(p, err, func(p *semaphore.Permit) error { return v.hasPermits(p) })
	}},
	{"release", givesPermits, func(v *victim) error {
		return v.permitted(2, func(*semaphore.Permit) error { v.lose(); return nil })
	}},
	{"release to the next", givesPermits, func(v *victim) error {
		return v.followed(context.Background(), func(*waiter) error { v.lose(); return nil })
	}},
	{"heartbeat", beatsPermits, func(v *victim) error {
		return v.followed(context.Background(), func(*waiter) error {
			v.lose()
			time.Sleep(replyHeartbeat / 2)
			return nil
		})
	}},
	{"place given up", givesPermits, func(v *victim) error {
		return v.permitted(permitLimit, func(p *semaphore.Permit) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w := v.follow(ctx)
			v.lose()
			cancel()
			if got := <-w.got; got != nil {
				return fmt.Errorf("%w: granted though all is in use", errDrift)
			}
			return v.waiting(0) // the waiter gives up its place in the background
		})
	}},
	{"resize", resizePermits, func(v *victim) error {
		for _, limit := range []int{5, permitLimit} {
			v.lose()
			if _, err := v.semaphore().Resize(context.Background(), limit); err != nil {
				return err
			}
			if info, err := v.semaphore().Inspect(context.Background()); err != nil || info.Limit != limit {
				return fmt.Errorf("%w: a limit of %d instead of %d: %w", errDrift, info.Limit, limit, err)
			}
		}
		return v.hasPermits(nil)
	}},
	{"renewal", keepsPermits, func(v *victim) error {
		return v.permitted(permitLimit, func(p *semaphore.Permit) error {
			v.lose()
			for trusted := p.TrustedUntil(); !p.TrustedUntil().After(trusted.Add(20 * time.Millisecond)); {
				select {
				case <-p.Lost():
					return context.Cause(p.Context())
				case <-time.After(time.Millisecond):
				}
			}
			return v.hasPermits(p)
		})
	}},
}

func (v *victim) semaphore() *semaphore.Semaphore {
	return v.locks.Semaphore(v.name, permitLimit)
}

// permitted calls then with a permit, and releases the permit.
func (v *victim) permitted(units int, then func(p *semaphore.Permit) error) error {
	p, err := v.semaphore().Acquire(context.Background(), units)
	return v.kept(p, err, then)
}

func (v *victim) kept(p *semaphore.Permit, err error, then func(p *semaphore.Permit) error) error {
	if err != nil {
		return err
	}
	return steps(
		func() error { return then(p) },
		func() error { return p.Release(context.Background()) },
		func() error { return v.hasPermits(nil) },
	)
}

// waiter waits for units that another has.
type waiter struct{ got chan *semaphore.Permit }

// follow returns when the waiter is in the queue.
func (v *victim) follow(ctx context.Context) *waiter {
	w := &waiter{got: make(chan *semaphore.Permit, 1)}
	go func() {
		p, _ := v.semaphore().Acquire(ctx, 2)
		w.got <- p
	}()
	v.ifBroken(v.waiting(1))
	return w
}

// waiting returns when the semaphore has n waiters.
func (v *victim) waiting(n int) error {
	for end := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		info, err := v.semaphore().Inspect(context.Background())
		switch {
		case err != nil:
			return err
		case info.Waiting == n:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w: %d wait, not %d", errDrift, info.Waiting, n)
		}
	}
}

// followed starts a waiter, calls then, and releases the permit for the waiter.
func (v *victim) followed(ctx context.Context, then func(w *waiter) error) error {
	var w *waiter
	first, err := v.semaphore().Acquire(ctx, permitLimit)
	if err != nil {
		return err
	}
	w = v.follow(ctx)
	return steps(
		func() error { return then(w) },
		func() error { return first.Release(ctx) },
		func() error {
			p := <-w.got
			return steps(
				func() error { return v.hasPermits(p) },
				func() error { return p.Release(ctx) },
				func() error { return v.hasPermits(nil) },
			)
		},
	)
}

// hasPermits compares the state in Redis with the permit that the client got. nil stands for no
// permit.
func (v *victim) hasPermits(p *semaphore.Permit) error {
	stored, err := v.server.Control().ZRange(context.Background(), key.ForSemaphore(v.name).Permits, 0, -1).Result()
	if err != nil {
		return err
	}
	stored = slices.DeleteFunc(stored, func(member string) bool { return member == "resized" })
	want := []string{"declared", "limit"}
	for bit := 1; p != nil && bit <= p.Units(); bit *= 2 {
		if p.Units()&bit != 0 {
			want = append(want, fmt.Sprintf("%s#%d", p.ID(), bit))
		}
	}
	slices.Sort(stored)
	slices.Sort(want)
	if !slices.Equal(stored, want) {
		return fmt.Errorf("%w: %q, want %q", errDrift, stored, want)
	}
	return nil
}
