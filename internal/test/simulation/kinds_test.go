package simulation_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// These are the kinds of lock that one name has. Each client has one of them, or takes turns
// between the first two.
const (
	plainKind    = "mutex"
	fairKind     = "fair mutex"
	bothKinds    = "both"
	redissonKind = "redisson"
)

// anyKind is a mutex that clients take in different ways. It excludes like each of them. keptApart
// describes its order.
var anyKind = func() primitive {
	p := inOrder
	p.kinds = []string{fairKind, plainKind, redissonKind, bothKinds}
	p.of = func(m *machine, name string, a *workload.Actor, options ...redlatch.LockOption) workload.Lock {
		switch m.plan.kindOf(slices.Index(m.actors, a)) {
		case plainKind:
			return plain.of(m, name, a, options...)
		case redissonKind:
			// The lease is as long as that of others, without a renewal, because plans hold for
			// less.
			return &redissonLock{rdb: m.rdb, key: key.ForMutex(name), client: fmt.Sprintf("5c0f-%d", a.Client), lease: m.plan.lease}
		}
		return inOrder.of(m, name, a, options...)
	}
	p.commands = map[string]func(cmd []string) bool{
		"acquire":   plain.commands["acquire"],
		"re-entry":  plain.commands["re-entry"],
		"transfer":  plain.commands["transfer"],
		"release":   plain.commands["release"],
		"renewal":   plain.commands["renewal"],
		"join":      inOrder.commands["acquire"],
		"heartbeat": inOrder.commands["heartbeat"],
		"leave":     inOrder.commands["release"], // and the command that releases the lock to the queue
	}
	p.grants = []string{"acquire", "transfer", "join"}
	return p
}()

// kindOf is the kind of lock that an actor of this client has, by its number.
func (c client) kindOf(actor int) string {
	if c.kind == bothKinds {
		return []string{fairKind, plainKind}[actor%2]
	}
	return c.kind
}

// All kinds of mutex exclude each other under one name. The kinds of this library do not get ahead
// of waiters in its queue.
func TestKindsShareAName(t *testing.T) {
	simulate(t, map[string]primitive{"mutexes": anyKind}, kindsMeet, func(p primitive, o outcome) error {
		return errors.Join(p.expires(o), p.excludes(o, o.history.Windows), p.fences(o), o.keptApart())
	})
}

// keptApart checks that fair waiters kept their order among each other (promise 9 of
// docs/guarantees.md). It also checks that plain mutexes went behind them, except for the time
// in which one client may hand the lock on, and left them the lock immediately. Redisson does not
// know the queue, so it may get ahead of everybody as often as it likes. When it releases, a
// heartbeat finds the free lock, and keptApart does not judge the delay.
func (o outcome) keptApart() error {
	of := func(kinds ...string) (ops []history.Op) {
		for _, op := range o.history.Ops {
			if slices.Contains(kinds, o.kinds[op.Client]) {
				ops = append(ops, op)
			}
		}
		return ops
	}
	excused := func(op history.Op) bool { return o.disturbed[op.Client] }
	process := func(op history.Op) int { return o.machines[op.Client] }
	err := errors.Join(
		check.Removed(o.history.Ops, o.removed),
		check.Order(of(fairKind), excused),
		check.Overtaken(of(fairKind, plainKind), o.handoffs, process, excused))
	if o.late {
		return err
	}
	return errors.Join(err, check.Prompt(o.history.Ops, soon, func(op history.Op) bool {
		return excused(op) || o.kinds[op.Client] == redissonKind
	}))
}
