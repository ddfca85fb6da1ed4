package stage

import (
	"context"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/lock"
)

// Primitives are the primitives as their events name them.
var Primitives = map[event.Primitive]string{event.Mutex: "mutex", event.FairMutex: "fair", event.Semaphore: "semaphore"}

// TryCalls acquire one kind of primitive each, without waiting.
var TryCalls = map[event.Primitive]func(c *redlatch.Client, ctx context.Context) error{
	event.Mutex: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.Mutex("orders").TryLock(ctx)
		return err
	},
	event.FairMutex: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.FairMutex("orders").TryLock(ctx)
		return err
	},
	event.Semaphore: func(c *redlatch.Client, ctx context.Context) error {
		_, err := c.Semaphore("orders", 1).TryAcquire(ctx, 1)
		return err
	},
}

// Calls are all calls that take a context and ask Redis, without their results.
func Calls(c *redlatch.Client) map[string]func(ctx context.Context) error {
	m, f, s := c.Mutex("orders"), c.FairMutex("orders"), c.Semaphore("orders", 3)
	nothing := func(context.Context) error { return nil }
	zero := func(context.Context) (int, error) { return 0, nil }
	return map[string]func(ctx context.Context) error{
		"Mutex.Lock":               func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
		"Mutex.TryLock":            func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
		"Mutex.Do":                 func(ctx context.Context) error { return m.Do(ctx, nothing) },
		"Mutex.TryDo":              func(ctx context.Context) error { return m.TryDo(ctx, nothing) },
		"Call":                     func(ctx context.Context) error { _, err := redlatch.Call(ctx, m, zero); return err },
		"Mutex.Inspect":            func(ctx context.Context) error { _, err := m.Inspect(ctx); return err },
		"Mutex.ForceRelease":       func(ctx context.Context) error { _, err := m.ForceRelease(ctx, ""); return err },
		"Mutex.ForceRelease of id": func(ctx context.Context) error { _, err := m.ForceRelease(ctx, "somebody:1"); return err },
		"FairMutex.Lock":           func(ctx context.Context) error { _, err := f.Lock(ctx); return err },
		"FairMutex.TryLock":        func(ctx context.Context) error { _, err := f.TryLock(ctx); return err },
		"FairMutex.Do":             func(ctx context.Context) error { return f.Do(ctx, nothing) },
		"FairMutex.TryDo":          func(ctx context.Context) error { return f.TryDo(ctx, nothing) },
		"FairMutex.Inspect":        func(ctx context.Context) error { _, err := f.Inspect(ctx); return err },
		"FairMutex.ForceRelease":   func(ctx context.Context) error { _, err := f.ForceRelease(ctx, "somebody:1"); return err },
		"FairMutex.Queue":          func(ctx context.Context) error { _, _, err := f.Queue(ctx, 0, 10); return err },
		"FairMutex.RemoveWaiter":   func(ctx context.Context) error { _, err := f.RemoveWaiter(ctx, "somebody:1"); return err },
		"Semaphore.Acquire":        func(ctx context.Context) error { _, err := s.Acquire(ctx, 1); return err },
		"Semaphore.TryAcquire":     func(ctx context.Context) error { _, err := s.TryAcquire(ctx, 1); return err },
		"Semaphore.Do":             func(ctx context.Context) error { return s.Do(ctx, 1, nothing) },
		"Semaphore.TryDo":          func(ctx context.Context) error { return s.TryDo(ctx, 1, nothing) },
		"Semaphore.Inspect":        func(ctx context.Context) error { _, err := s.Inspect(ctx); return err },
		"Semaphore.Resize":         func(ctx context.Context) error { _, err := s.Resize(ctx, 4); return err },
		"Semaphore.ForceRelease":   func(ctx context.Context) error { _, err := s.ForceRelease(ctx, "somebody:1"); return err },
		"Semaphore.Queue":          func(ctx context.Context) error { _, _, err := s.Queue(ctx, 0, 10); return err },
		"Semaphore.RemoveWaiter":   func(ctx context.Context) error { _, err := s.RemoveWaiter(ctx, "somebody:1"); return err },
	}
}

// WaitingLine is the queue of one name, as operators see it.
type WaitingLine interface {
	Queue(ctx context.Context, skip, show int) ([]lock.Waiter, int, error)
	RemoveWaiter(ctx context.Context, acquisition string) (bool, error)
}

// Held has the methods of a hold and of a permit that tests of all primitives need.
type Held interface {
	Lost() <-chan struct{}
	Context() context.Context
}

// Kinds are the primitives, on the name "orders". Take acquires one, Ask is the script that
// requests it, and Release is the script that releases it.
var Kinds = map[string]struct {
	Release string
	Take    func(c *redlatch.Client, ctx context.Context) (h Held, release func(context.Context) error, err error)
	Ask     string
}{
	"mutex":     {"mutex/release", takeOrders("mutex"), "mutex/acquire"},
	"fair":      {"fair/leave", takeOrders("fair"), "fair/join"},
	"semaphore": {"semaphore/release", takeOrders("semaphore"), "semaphore/acquire"},
}

func takeOrders(kind string) func(c *redlatch.Client, ctx context.Context) (Held, func(context.Context) error, error) {
	return func(c *redlatch.Client, ctx context.Context) (Held, func(context.Context) error, error) {
		return ByName[kind].Take(c, ctx, "orders")
	}
}

// ByName are the primitives, on any name. Take acquires one, and Do runs a function under it.
var ByName = map[string]struct {
	Take func(c *redlatch.Client, ctx context.Context, name string) (h Held, release func(context.Context) error, err error)
	Do   func(c *redlatch.Client, ctx context.Context, name string, fn func(context.Context) error) error
}{
	"mutex": {func(c *redlatch.Client, ctx context.Context, name string) (Held, func(context.Context) error, error) {
		h, err := c.Mutex(name).Lock(ctx)
		return h, h.Unlock, err
	}, func(c *redlatch.Client, ctx context.Context, name string, fn func(context.Context) error) error {
		return c.Mutex(name).Do(ctx, fn)
	}},
	"fair": {func(c *redlatch.Client, ctx context.Context, name string) (Held, func(context.Context) error, error) {
		h, err := c.FairMutex(name).Lock(ctx)
		return h, h.Unlock, err
	}, func(c *redlatch.Client, ctx context.Context, name string, fn func(context.Context) error) error {
		return c.FairMutex(name).Do(ctx, fn)
	}},
	"semaphore": {func(c *redlatch.Client, ctx context.Context, name string) (Held, func(context.Context) error, error) {
		p, err := c.Semaphore(name, 1).Acquire(ctx, 1)
		return p, p.Release, err
	}, func(c *redlatch.Client, ctx context.Context, name string, fn func(context.Context) error) error {
		return c.Semaphore(name, 1).Do(ctx, 1, fn)
	}},
}

// DoCalls run a function under one kind of lock each, on the name "orders".
var DoCalls = map[string]func(c *redlatch.Client, ctx context.Context, fn func(context.Context) error) error{
	"mutex":     doOrders("mutex"),
	"fair":      doOrders("fair"),
	"semaphore": doOrders("semaphore"),
}

func doOrders(kind string) func(c *redlatch.Client, ctx context.Context, fn func(context.Context) error) error {
	return func(c *redlatch.Client, ctx context.Context, fn func(context.Context) error) error {
		return ByName[kind].Do(c, ctx, "orders", fn)
	}
}
