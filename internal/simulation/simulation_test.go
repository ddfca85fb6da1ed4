package simulation_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/check"
	"github.com/redlatch/redlatch/internal/history"
)

// Nothing can expire, whatever happens to connections: then every answer is one
// that a single lock without faults could have given.
func TestAnswersAreRightWhileNothingExpires(t *testing.T) {
	simulate(t, primitives, nothingExpires, answersAreRight)
}

// An Unlock that failed may be tried again, and tells of no loss that never was.
func TestUnlockMayBeTriedAgain(t *testing.T) {
	simulate(t, primitives, linksFlap, answersAreRight)
}

// Leases end because holders die, are cut off or come too late: never do two
// trust at one time, and whose link is whole keeps its place.
func TestNoTwoTrustWhileLeasesExpire(t *testing.T) {
	simulate(t, primitives, leasesExpire, noTwoTrust)
}

// Keys vanish, the clock of the server jumps: two may hold, but fences grow, and
// keep late writers out, and who has lost the lock is told within a lease. Single answers
// cannot be judged: an Unlock that is sent again finds nothing, and takes what vanished
// before for what it did itself.
func TestFencesGrowWhileKeysVanish(t *testing.T) {
	simulate(t, primitives, keysVanish, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.afterALease()), p.fences(o), o.order(p))
	})
}

// Clients are cut off for longer than their heartbeats, so that what they were granted
// ends before they hear of it; messages come late, or from strangers.
func TestQueuesOutlastHeartbeats(t *testing.T) {
	simulate(t, primitives, heartbeatsEnd, noTwoTrust)
}

// The server stands still for longer than heartbeats, and nobody who lives loses its
// place.
func TestStandstillsCostNoPlace(t *testing.T) {
	simulate(t, primitives, serverStands, noTwoTrust)
}

// Clients of one lock have different leases, heartbeats and retentions.
func TestOptionsMayDiffer(t *testing.T) {
	simulate(t, primitives, optionsDiffer, func(p primitive, o outcome) error {
		return errors.Join(noTwoTrust(p, o), o.inherited(p))
	})
}

// Locks whose names have much in common have nothing else in common; nor have
// goroutines that work with the context of one hold.
func TestNamesAreApart(t *testing.T) {
	simulate(t, primitives, namesAreRelated, answersAreRight)
}

// The server's clock is set back by ten minutes or more: nobody waits that long.
func TestClockStepsAreMended(t *testing.T) {
	simulate(t, primitives, clockSteps, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.history.Windows), p.fences(o), o.order(p))
	})
}

// A client that closes returns in time, however much it holds.
func TestClosingEndsInTime(t *testing.T) {
	simulate(t, primitives, muchIsHeld, noTwoTrust)
}

func answersAreRight(p primitive, o outcome) error {
	return errors.Join(p.linearizable(o.history.Ops), p.excludes(o, o.history.Windows), p.fences(o), o.order(p), o.places(), check.Counts(o.counts))
}

// places says whether everybody kept the place in the queue, which no single lost reply
// may cost.
func (o outcome) places() error {
	for _, op := range o.history.Ops {
		if op.Again != 0 {
			return fmt.Errorf("lost its place:\n%v", op)
		}
	}
	return nil
}

func noTwoTrust(p primitive, o outcome) error {
	return errors.Join(p.expires(o), p.excludes(o, o.history.Windows), p.fences(o), o.order(p))
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
		ops = check.Unheard(ops, func(op history.Op) bool { return o.stood || o.disturbed[op.Client] })
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

// outcome is what became of the lock of one name in a schedule.
type outcome struct {
	history            history.History
	counts             []history.Op
	checked, unchecked check.Audit
	lease              time.Duration // the longest
	heartbeat          time.Duration // the longest
	disturbed          map[int]bool  // actors
	displaced          map[int]bool  // those of them who may have lost their place
	deleted            bool          // was a key, or what somebody had been granted ended by force
	late               bool          // did commands come, or come again
	stood              bool          // did the server stand still
	stoodFrom          int64
	stoodUntil         int64
	deaths             []check.Death
	kinds              map[int]string // of the locks of actors
	turns              int
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
// when it was given back, where nothing came late. Nobody takes a waiter out.
func (o outcome) order(p primitive) error {
	err := check.Removed(o.history.Ops)
	if !p.queued {
		return err
	}
	deleted := func(op history.Op) bool { return o.deleted && op.Again != 0 } // what it had been granted
	displaced := func(op history.Op) bool { return o.displaced[op.Client] || deleted(op) || o.lapsed() }
	excused := func(op history.Op) bool { return o.disturbed[op.Client] || deleted(op) }
	err = errors.Join(err, check.Order(o.history.Ops, displaced))
	if o.stood {
		return err
	}
	if o.late { // what nobody asks for any more may be granted first, until it counts as dead
		return err
	}
	return errors.Join(err, check.Prompt(o.history.Ops, soon, excused))
}

// lapsed reports whether the first of the queue may have been granted the lock just
// before the server stood still, a beat before where it hears no messages: nobody can
// take such a grant before it ends.
func (o outcome) lapsed() bool {
	since := o.stoodFrom - (o.heartbeat/3 + soon).Nanoseconds()
	return o.stood && slices.ContainsFunc(o.history.Ops, func(op history.Op) bool {
		return op.Kind == history.Release && op.Return > since && op.Call < o.stoodUntil
	})
}

// inherited says whether a holder that died delayed others by no more than its lease:
// where waiters learn of the end of that by a beat, a third of a heartbeat later.
func (o outcome) inherited(p primitive) error {
	if !p.queued {
		return nil
	}
	return check.Inherited(o.history.Ops, o.deaths, soon+o.heartbeat/3, func(op history.Op) bool { return o.disturbed[op.Client] })
}

func simulate(t *testing.T, all map[string]primitive, h hardship, verdict func(primitive, outcome) error) {
	t.Parallel()
	h = h.filled()
	for name, p := range all {
		if h.forgets() {
			p = p.withoutResizes()
		}
		if h.unrenewed {
			p = p.without("renewal")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := newTally()
			rapid.Check(t, func(t *rapid.T) {
				s := draw(t, p, h)
				outcomes, err := play(t, p, s, sum)
				said := ""
				for _, o := range outcomes {
					err = errors.Join(err, verdict(p, o))
					said += check.Describe(o.history.Ops)
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
			})
			sum.report(t, p, h)
		})
	}
}

// play runs a schedule in a bubble of its own. What became of it is told for each name.
func play(t *rapid.T, p primitive, s schedule, sum *tally) (outcomes []outcome, err error) {
	rapid.SyncTest(t, func(t *rapid.T) {
		w := build(t, p, s)
		err = w.run()
		w.settle()
		err = errors.Join(err, w.overran, w.misled(), w.idle(p), w.remains(p), w.end())
		outcomes = w.outcomes()
		sum.add(w, outcomes)
		runtime.KeepAlive(w)
	})
	return outcomes, err
}
