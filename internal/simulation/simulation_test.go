package simulation_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
	"github.com/redlatch/redlatch/internal/workload"
)

// primitives are simulated, each under every hardship.
var primitives = map[string]primitive{
	"mutex": {
		of:       func(c *redlatch.Client, a *workload.Actor) workload.Lock { return workload.Of(c.Mutex(a.Name)) },
		stays:    func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") },
		outlives: func(s schedule) time.Duration { return s.lease },
		linearizable: func(ops []history.Op) error {
			return check.Linearizable(ops, check.ReentrantMutex())
		},
		whileLeasesEnd: func(ops []history.Op) error {
			return check.Linearizable(ops, check.ReentrantMutex())
		},
		fenced: true, units: 1, keys: []string{name},
		commands: map[string]func(cmd []string) bool{
			"acquire":  func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] == "1" },
			"re-entry": func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] != "1" },
			"transfer": runs("mutex/transfer"),
			"release":  runs("mutex/release"),
			"renewal":  runs("mutex/renew"),
		},
		grants: []string{"acquire", "transfer"},
	},
	"fair mutex": {
		of: func(c *redlatch.Client, a *workload.Actor) workload.Lock {
			return workload.Of(c.FairMutex(a.Name, redlatch.WithWaitNotice(a.Waits)))
		},
		stays: func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") },
		outlives: func(s schedule) time.Duration { // or a queue in which all died
			return max(s.lease, time.Minute+10*s.heartbeat)
		},
		linearizable: func(ops []history.Op) error {
			return check.Linearizable(ops, check.FairMutex())
		},
		whileLeasesEnd: func(ops []history.Op) error {
			return check.Linearizable(ops, check.ReentrantMutex())
		},
		queued: true, fenced: true, units: 1, keys: []string{name},
		commands: map[string]func(cmd []string) bool{
			"acquire":       runs("fair/join"),
			"re-entry":      runs("mutex/acquire"),
			"heartbeat":     runs("fair/beat"),
			"inner release": runs("mutex/release"),
			"release":       runs("fair/leave"),
			"renewal":       runs("mutex/renew"),
		},
		grants: []string{"acquire"},
	},
	"semaphore": permits,
}

// Nothing can expire, whatever happens to connections: then every answer is one
// that a single lock without faults could have given.
func TestAnswersAreRightWhileNothingExpires(t *testing.T) {
	simulate(t, nothingExpires, func(p primitive, o outcome) error {
		return errors.Join(p.linearizable(o.history.Ops), p.excludes(o, o.history.Windows), p.fences(o), o.order(p))
	})
}

// Leases end because holders die, are cut off or come too late: never do two
// trust at one time, and whose link is whole keeps its place.
func TestNoTwoTrustWhileLeasesExpire(t *testing.T) {
	simulate(t, leasesExpire, func(p primitive, o outcome) error {
		return errors.Join(p.expires(o), p.excludes(o, o.history.Windows), p.fences(o), o.order(p))
	})
}

// Keys vanish, the clock of the server jumps: two may hold, but fences grow, and
// keep late writers out, and who has lost the lock is told within a lease. Single answers
// cannot be judged: an Unlock that is sent again finds nothing, and takes what vanished
// before for what it did itself.
func TestFencesGrowWhileKeysVanish(t *testing.T) {
	simulate(t, keysVanish, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.afterALease()), p.fences(o), o.order(p))
	})
}

// expires says whether the answers are those of a lock whose holds may end by
// themselves. The order of waiters is looked at elsewhere. Late copies and originals
// of a grant may be granted to nobody, until they are void or their lease ends: who is
// refused meanwhile is not judged. Nor is who is refused by a semaphore, which says how many units
// are in use, those of waiters included that never heard of them.
func (p primitive) expires(o outcome) error {
	ops := o.history.Ops
	if o.late || !p.fenced {
		ops = check.Grants(ops)
	} else {
		ops = check.Unheard(ops, func(op history.Op) bool { return o.disturbed[op.Client] })
	}
	return p.whileLeasesEnd(check.Expiring(check.Abandoned(ops), o.lease))
}

// excludes says whether never more was trusted in those windows than there is.
func (p primitive) excludes(o outcome, windows []history.Window) error {
	return check.Overlaps(windows, check.Limit(p.units, o.history.Ops...))
}

// fences says whether they grew, and kept the resource whole.
func (p primitive) fences(o outcome) error {
	if !p.fenced {
		return nil
	}
	return errors.Join(check.Fences(o.history.Ops), o.protected())
}

// outcome is what became of a schedule.
type outcome struct {
	history            history.History
	checked, unchecked check.Audit
	lease              time.Duration
	disturbed          map[int]bool // actors
	deleted            bool         // was a key
	late               bool         // did commands come, or come again
}

// afterALease is the windows without their first lease: who had the lock before
// may trust that long.
func (o outcome) afterALease() []history.Window {
	windows := slices.Clone(o.history.Windows)
	for i := range windows {
		windows[i].From += o.lease.Nanoseconds()
	}
	return windows
}

// protected says whether fences kept the resource whole.
func (o outcome) protected() error {
	if o.checked.Stale != 0 || o.checked.Lost() != 0 {
		return errors.New("the resource that looks at fences was damaged")
	}
	return nil
}

// soon is more than a wire that takes time needs to hand a lock over, and less than
// a heartbeat needs to find that it was not.
const soon = 100 * time.Millisecond

// order says whether all who could be heard of kept their places, and got the lock
// when it was given back, where nothing came late.
func (o outcome) order(p primitive) error {
	if !p.queued {
		return nil
	}
	excused := func(op history.Op) bool {
		return o.disturbed[op.Client] || o.deleted && op.Again != 0 // what it had been granted
	}
	err := check.Order(o.history.Ops, excused)
	if o.late { // what nobody asks for any more may be granted first, until it counts as dead
		return err
	}
	return errors.Join(err, check.Prompt(o.history.Ops, soon, excused))
}

func simulate(t *testing.T, h hardship, verdict func(primitive, outcome) error) {
	t.Parallel()
	for name, p := range primitives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := newTally()
			rapid.Check(t, func(t *rapid.T) {
				s := draw(t, p, h)
				o, err := play(t, p, s, sum)
				if err = errors.Join(err, verdict(p, o)); err != nil {
					t.Fatalf("%v\n%s", err, check.Describe(o.history.Ops))
				}
			})
			sum.report(t, p, h)
		})
	}
}

// play runs a schedule in a bubble of its own.
func play(t *rapid.T, p primitive, s schedule, sum *tally) (o outcome, err error) {
	rapid.SyncTest(t, func(t *rapid.T) {
		w := build(t, p, s)
		err = w.run()
		w.settle()
		err = errors.Join(err, w.idle(p), w.remains(p), w.end())
		ctx := context.Background()
		o.lease, o.disturbed, o.deleted = s.lease, w.disturbed(), w.bites["delete"] > 0
		o.late = w.late()
		o.history = w.recorder.History()
		o.checked, _ = w.checked.Audit(ctx)
		o.unchecked, _ = w.unchecked.Audit(ctx)
		sum.add(w, o)
		runtime.KeepAlive(w)
	})
	return o, err
}
