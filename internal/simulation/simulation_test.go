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
		of:    func(c *redlatch.Client, a *workload.Actor) workload.Lock { return workload.Of(c.Mutex(a.Name)) },
		stays: func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") },
		linearizable: func(ops []history.Op) error {
			return check.Linearizable(ops, check.ReentrantMutex())
		},
		units: 1,
		commands: map[string]func(cmd []string) bool{
			"acquire":  func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] == "1" },
			"re-entry": func(cmd []string) bool { return runs("mutex/acquire")(cmd) && cmd[7] != "1" },
			"transfer": runs("mutex/transfer"),
			"release":  runs("mutex/release"),
			"renewal":  runs("mutex/renew"),
		},
		grants: []string{"acquire", "transfer"},
	},
}

// Nothing can expire, whatever happens to connections: then every answer is one
// that a single lock without faults could have given.
func TestAnswersAreRightWhileNothingExpires(t *testing.T) {
	simulate(t, nothingExpires, func(p primitive, o outcome) error {
		return errors.Join(p.linearizable(o.history.Ops), check.Overlaps(o.history.Windows, check.Limit(p.units, o.history.Ops...)), check.Fences(o.history.Ops), o.protected())
	})
}

// Leases end because holders die, are cut off or come too late: never do two
// trust at one time.
func TestNoTwoTrustWhileLeasesExpire(t *testing.T) {
	simulate(t, leasesExpire, func(p primitive, o outcome) error {
		return errors.Join(check.Overlaps(o.history.Windows, check.Limit(p.units, o.history.Ops...)), check.Fences(o.history.Ops), o.protected())
	})
}

// Keys vanish, the clock of the server jumps: two may hold, but fences grow, and
// keep late writers out, and who has lost the lock is told within a lease.
func TestFencesGrowWhileKeysVanish(t *testing.T) {
	simulate(t, keysVanish, func(p primitive, o outcome) error {
		return errors.Join(check.Fences(o.history.Ops), o.protected(), check.Overlaps(o.afterALease(), check.Limit(p.units, o.history.Ops...)))
	})
}

// outcome is what became of a schedule.
type outcome struct {
	history            history.History
	checked, unchecked check.Audit
	lease              time.Duration
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
		err = errors.Join(err, w.remains(p), w.end())
		ctx := context.Background()
		o.lease = s.lease
		o.history = w.recorder.History()
		o.checked, _ = w.checked.Audit(ctx)
		o.unchecked, _ = w.unchecked.Audit(ctx)
		sum.add(w, o)
		runtime.KeepAlive(w)
	})
	return o, err
}
