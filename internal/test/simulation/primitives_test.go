package simulation_test

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// primitive is a lock in the simulation.
type primitive struct {
	// of returns the lock of a name for the client of a machine.
	of func(m *machine, name string, a *workload.Actor, options ...redlatch.LockOption) workload.Lock
	// stays reports whether Redis keeps a key by design when nobody uses the locks of these names
	// any more.
	stays func(key string, names []string) bool
	// outlives is how long the keys of a client may outlive it in Redis.
	outlives     func(s schedule) time.Duration
	linearizable func(ops []history.Op) error
	// whileLeasesEnd judges a history in which the end of a hold is an operation.
	whileLeasesEnd func(ops []history.Op) error
	// queued: waiters are in a queue, whose order is judged too.
	queued  bool
	fenced  bool
	counted bool     // Redis counts holds
	kinds   []string // kinds of lock, one for each client; nil: there is one kind
	units   int      // number of units, which is 1 for a mutex
	resizes []int    // limits that Resize sets; none for a mutex
	keys    []string // keys that may vanish, with the key of the holder first
	// force ends a hold, as operators do. false: nobody can say that it did.
	force func(ctx context.Context, m *machine, acquisition string) bool
	// queue is what operators do; nil if there is no queue.
	queue func(m *machine) queue
	// idle checks that all units can be acquired again when nobody holds anything. It uses a client
	// that did nothing before. If it is nil, only keys can show that.
	idle func(ctx context.Context, w *world, c *redlatch.Client, name string) error
	// commands are its commands on the wire. Two of them have to be "acquire" and "release". grants
	// are the ones that may grant. If a kind matches nothing any more, its faults never bite, and
	// the test fails.
	commands map[string]func(cmd []string) bool
	grants   []string
}

const name = "orders"

// primitives are the ones that the tests simulate, each under every hardship.
var primitives = map[string]primitive{"mutex": plain, "fair mutex": inOrder, "semaphore": permits}

var plain = primitive{
	of: func(m *machine, name string, _ *workload.Actor, options ...redlatch.LockOption) workload.Lock {
		return workload.Of(m.client.Mutex(name, options...))
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

// isFirst reports whether an acquire is not a re-entry.
func isFirst(cmd []string) bool { return cmd[8] == "1" }

func isFence(key string, _ []string) bool { return strings.HasPrefix(key, "redisson_lock_token:") }

var inOrder = primitive{
	of: func(m *machine, name string, a *workload.Actor, options ...redlatch.LockOption) workload.Lock {
		return workload.Of(m.client.FairMutex(name, append(options, redlatch.WithWaitCallback(a.Waits))...))
	},
	force: func(ctx context.Context, m *machine, _ string) bool {
		holder, _ := m.client.FairMutex(name).ForceRelease(ctx, "")
		return holder != ""
	},
	queue:    func(m *machine) queue { return m.client.FairMutex(name) },
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

// outlivesAQueue is how long a queue stays in which all waiters have crashed.
func outlivesAQueue(s schedule) time.Duration { return max(s.lease(), time.Minute+10*s.heartbeat()) }

// withoutResizes is for schedules in which Redis soon forgets a limit.
func (p primitive) withoutResizes() primitive {
	p.resizes = nil
	return p.without("resize")
}

// without is for schedules in which nobody sends the command.
func (p primitive) without(command string) primitive {
	p.commands = maps.Clone(p.commands)
	delete(p.commands, command)
	return p
}
