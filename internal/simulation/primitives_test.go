package simulation_test

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/workload"
)

// primitive is a lock under simulation.
type primitive struct {
	// of is the lock of a name, as the client of a machine has it.
	of func(m *machine, name string, a *workload.Actor) workload.Lock
	// stays reports whether a key stays, by design, when nobody has to do with the
	// locks of these names any more.
	stays func(key string, names []string) bool
	// outlives is how long what a client had in Redis may outlive it.
	outlives     func(s schedule) time.Duration
	linearizable func(ops []history.Op) error
	// whileLeasesEnd judges a history in which the end of a hold is an operation.
	whileLeasesEnd func(ops []history.Op) error
	// queued: those who have to wait stand in a queue, whose order is judged too.
	queued  bool
	fenced  bool
	counted bool     // Redis counts holds
	kinds   []string // of locks, one for each client; nil: there is one
	units   int      // that there are, 1 of a mutex
	resizes []int    // to which their number is changed; none of a mutex
	keys    []string // that may vanish, the first being that of who holds
	// force ends a hold, as operators do; false: nobody can say that it did.
	force func(ctx context.Context, m *machine, acquisition string) bool
	// idle looks, by a client that had nothing to do with it, whether all that there is
	// can be had again when nobody holds anything. Nil: nothing but keys can tell.
	idle func(ctx context.Context, w *world, c *redlatch.Client, name string) error
	// commands are its commands on the wire, of which "acquire" and "release" have
	// to be two; grants are those that may grant. A kind that stops matching shows
	// as one that never bites.
	commands map[string]func(cmd []string) bool
	grants   []string
}

const name = "orders"

// primitives are simulated, each under every hardship.
var primitives = map[string]primitive{"mutex": plain, "fair mutex": inOrder, "semaphore": permits}

var plain = primitive{
	of: func(m *machine, name string, _ *workload.Actor) workload.Lock {
		return workload.Of(m.client.Mutex(name))
	},
	force: func(ctx context.Context, m *machine, _ string) bool {
		holder, _ := m.client.Mutex(name).ForceRelease(ctx, "")
		return holder != ""
	},
	stays:    isFence,
	outlives: func(s schedule) time.Duration { return s.lease() },
	linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.ReentrantMutex())
	},
	whileLeasesEnd: func(ops []history.Op) error {
		return check.Linearizable(ops, check.ReentrantMutex())
	},
	fenced: true, counted: true, units: 1, keys: []string{name},
	commands: map[string]func(cmd []string) bool{
		"acquire":  func(cmd []string) bool { return runs("mutex/acquire")(cmd) && isFirst(cmd) },
		"re-entry": func(cmd []string) bool { return runs("mutex/acquire")(cmd) && !isFirst(cmd) },
		"transfer": runs("mutex/transfer"),
		"release":  runs("mutex/release"),
		"renewal":  runs("mutex/renew"),
	},
	grants: []string{"acquire", "transfer"},
}

// isFirst reports whether an acquire is no re-entry.
func isFirst(cmd []string) bool { return cmd[8] == "1" }

func isFence(key string, _ []string) bool { return strings.HasPrefix(key, "redisson_lock_token:") }

var inOrder = primitive{
	of: func(m *machine, name string, a *workload.Actor) workload.Lock {
		return workload.Of(m.client.FairMutex(name, redlatch.WithWaitNotice(a.Waits)))
	},
	force: func(ctx context.Context, m *machine, _ string) bool {
		holder, _ := m.client.FairMutex(name).ForceRelease(ctx, "")
		return holder != ""
	},
	stays:    isFence,
	outlives: outlivesAQueue,
	linearizable: func(ops []history.Op) error {
		return check.Linearizable(ops, check.FairMutex())
	},
	whileLeasesEnd: func(ops []history.Op) error {
		return check.Linearizable(ops, check.ReentrantMutex())
	},
	queued: true, fenced: true, counted: true, units: 1, keys: []string{name},
	commands: map[string]func(cmd []string) bool{
		"acquire":       runs("fair/join"),
		"re-entry":      runs("mutex/acquire"),
		"heartbeat":     runs("fair/beat"),
		"inner release": runs("mutex/release"),
		"release":       runs("fair/leave"),
		"renewal":       runs("mutex/renew"),
	},
	grants: []string{"acquire"},
}

// outlivesAQueue is as long as a queue in which all died stays.
func outlivesAQueue(s schedule) time.Duration { return max(s.lease(), time.Minute+10*s.heartbeat()) }

// withoutResizes is for schedules in which a limit is soon forgotten.
func (p primitive) withoutResizes() primitive {
	p.resizes = nil
	return p.without("resize")
}

// without is for schedules in which nobody sends a command.
func (p primitive) without(command string) primitive {
	p.commands = maps.Clone(p.commands)
	delete(p.commands, command)
	return p
}
