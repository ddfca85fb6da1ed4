package simulation_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
)

// Nothing can expire, whatever happens to connections. So every answer is one that a single lock
// without faults could have given.
func TestAnswersAreRightWhileNothingExpires(t *testing.T) {
	simulate(t, primitives, nothingExpires, answersAreRight)
}

// A cluster moves slots, and loses nodes but no data. The answers are those of one server.
func TestAnswersAreRightWhileSlotsMove(t *testing.T) {
	simulate(t, primitives, slotsMove, answersAreRight)
}

// A failed Unlock may be called again, and does not report a loss that never happened.
func TestUnlockMayBeTriedAgain(t *testing.T) {
	simulate(t, primitives, linksFlap, answersAreRight)
}

// Leases end because holders crash, are cut off, or come too late. Two holders never trust their
// holds at the same time, and a client whose link works keeps its place.
func TestNoTwoTrustWhileLeasesExpire(t *testing.T) {
	simulate(t, primitives, leasesExpire, noTwoTrust)
}

// Keys vanish, and the clock of the server jumps. Two clients may hold the lock, but fences grow
// and reject late writers. A holder that has lost the lock is notified within a lease. The test
// cannot judge single answers. An Unlock that is sent again finds nothing, and takes a key that
// vanished before for one that it removed itself.
func TestFencesGrowWhileKeysVanish(t *testing.T) {
	simulate(t, primitives, keysVanish, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.afterALease()), p.fences(o), o.order(p))
	})
}

// A failover forgets what was written last. Two clients may hold the lock, but fences grow and
// reject late writers, and a holder that has lost the lock is notified within a lease.
func TestFencesGrowWhileFailoversForget(t *testing.T) {
	simulate(t, primitives, failoversForget, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.afterALease()), p.fences(o), o.order(p))
	})
}

// Clients are cut off for longer than their heartbeats, so their grants end before they know of
// them. Messages come late, or from strangers.
func TestQueuesOutlastHeartbeats(t *testing.T) {
	simulate(t, primitives, heartbeatsEnd, noTwoTrust)
}

// The server stands still for longer than heartbeats, and no live waiter loses its place.
func TestStandstillsCostNoPlace(t *testing.T) {
	simulate(t, primitives, serverStands, noTwoTrust)
}

// Clients of one lock have different leases, heartbeats and retentions.
func TestOptionsMayDiffer(t *testing.T) {
	simulate(t, primitives, optionsDiffer, func(p primitive, o outcome) error {
		return errors.Join(noTwoTrust(p, o), o.inherited(p))
	})
}

// Locks whose names have much in common have nothing else in common. The same holds for goroutines
// that work with the context of one hold.
func TestNamesAreApart(t *testing.T) {
	simulate(t, primitives, namesAreRelated, answersAreRight)
}

// The server's clock is set back by ten minutes or more, and nobody waits that long.
func TestClockStepsAreMended(t *testing.T) {
	simulate(t, primitives, clockSteps, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.history.Windows), p.fences(o), o.order(p))
	})
}

// A client that closes returns in time, however much it holds.
func TestClosingEndsInTime(t *testing.T) {
	simulate(t, primitives, muchIsHeld, noTwoTrust)
}

// Redis keeps a lock after its last hold, for at least as long as its holder wanted. An exported
// hold can be attached all that time.
func TestLocksAreKept(t *testing.T) {
	simulate(t, primitives, locksAreKept, func(p primitive, o outcome) error {
		return errors.Join(p.excludes(o, o.history.Windows), p.fences(o))
	})
}

func answersAreRight(p primitive, o outcome) error {
	return errors.Join(p.linearizable(o.history.Ops), p.excludes(o, o.history.Windows), p.fences(o), o.order(p), o.places(), check.Counts(o.counts))
}

// places checks that everybody kept their place in the queue. No single lost reply may cost a
// place.
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

// expires checks that the answers are those of a lock whose holds may end by themselves. Other
// checks judge the order of waiters. Late copies and originals of a grant may grant the lock to
// nobody, until they are void or their lease ends, so requests that are refused meanwhile are not
// judged. Refusals of a semaphore are not judged either. A semaphore answers how many units are in
// use, and that includes grants that their waiters do not know of.
func (p primitive) expires(o outcome) error {
	ops := o.history.Ops
	if o.late || !p.fenced {
		ops = check.Grants(ops)
	} else {
		ops = check.Delayed(ops, func(op history.Op) bool { return o.delayed[op.Client] })
		ops = check.Unnotified(ops, func(op history.Op) bool { return o.stood || o.disturbed[op.Client] })
	}
	return p.whileLeasesEnd(check.Expiring(check.Abandoned(ops), o.lease))
}

// excludes checks that holders never trusted more units in those windows than there are.
func (p primitive) excludes(o outcome, windows []history.Window) error {
	return check.Overlaps(windows, check.Limit(p.units, o.history.Ops...))
}

// fences checks that fences grew, and protected the resource.
func (p primitive) fences(o outcome) error {
	if !p.fenced {
		return nil
	}
	return errors.Join(check.Fences(o.history.Ops), o.protected())
}

// outcome is what happened to the lock of one name in a schedule.
type outcome struct {
	history            history.History
	counts             []history.Op
	checked, unchecked check.Audit
	lease              time.Duration // the longest
	heartbeat          time.Duration // the longest
	disturbed          map[int]bool  // actors
	displaced          map[int]bool  // actors of these that may have lost their place
	delayed            map[int]bool  // actors whose requests were delayed
	deletions          []int64       // when a key was to be deleted, or an operator ended a grant
	removed            int           // waiters that an operator may have removed
	late               bool          // commands came late, or came again
	stood              bool          // the server stood still
	stoodFrom          int64
	stoodUntil         int64
	deaths             []check.Death
	kinds              map[int]string // of the locks of actors
	machines           map[int]int    // of actors
	handoffs           time.Duration
}

// afterALease returns the windows without their first lease, because the previous holder may trust
// its hold for that long.
func (o outcome) afterALease() []history.Window {
	windows := slices.Clone(o.history.Windows)
	for i := range windows {
		windows[i].From += o.lease.Nanoseconds()
	}
	return windows
}

// protected checks that fences protected the resource.
func (o outcome) protected() error {
	if o.checked.Stale != 0 || o.checked.Lost() != 0 {
		return errors.New("the resource that looks at fences was damaged")
	}
	return nil
}

// soon is longer than a slow wire needs to hand over a lock. It is shorter than the time in which a
// heartbeat finds that nobody did so.
const soon = 100 * time.Millisecond

// order checks that all waiters whose links worked kept their places. If nothing came late, it also
// checks that they got the lock as soon as it was released.
func (o outcome) order(p primitive) error {
	err := check.Removed(o.history.Ops, o.removed)
	if !p.queued {
		return err
	}
	// A grant may have been deleted before its waiter knew of it. Then the waiter queues again. If
	// it is granted at once, it never knows that it had lost its place.
	deleted := func(op history.Op) bool {
		return slices.ContainsFunc(o.deletions, func(at int64) bool { return op.Call <= at+soon.Nanoseconds() && at <= op.Return })
	}
	displaced := func(op history.Op) bool { return o.displaced[op.Client] || deleted(op) || o.lapsed() }
	excused := func(op history.Op) bool { return o.disturbed[op.Client] || deleted(op) }
	err = errors.Join(err, check.Order(o.history.Ops, displaced))
	if o.stood {
		return err
	}
	if o.late { // Redis may first grant to requests that have ended, until it takes them for crashed
		return err
	}
	return errors.Join(err, check.Prompt(o.history.Ops, soon, excused))
}

// lapsed reports whether the first waiter in the queue may have got the lock just before the server
// stood still. Without messages, that is up to a heartbeat command before. Nobody can take such a
// grant before it ends.
func (o outcome) lapsed() bool {
	since := o.stoodFrom - (o.heartbeat/3 + soon).Nanoseconds()
	return o.stood && slices.ContainsFunc(o.history.Ops, func(op history.Op) bool {
		return op.Kind == history.Release && op.Return > since && op.Call < o.stoodUntil
	})
}

// inherited checks that a crashed holder delayed others by no more than its lease. If waiters find
// the end of the lease with a heartbeat, that may take a third of a heartbeat longer.
func (o outcome) inherited(p primitive) error {
	if !p.queued {
		return nil
	}
	return check.Inherited(o.history.Ops, o.deaths, soon, func(op history.Op) bool { return o.disturbed[op.Client] })
}

func simulate(t *testing.T, all map[string]primitive, h hardship, judge func(primitive, outcome) error) {
	t.Parallel()
	h = h.filled()
	for name, p := range all {
		if h.forgets() {
			p = p.withoutResizes()
		}
		if h.unrenewed {
			p = p.without("renewal")
		}
		h := h
		if p.queue == nil {
			h.events = without(h.events, "remove waiter")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := newTally()
			rapid.Check(t, func(t *rapid.T) {
				s := draw(t, p, h)
				outcomes, err := play(t, p, s, sum)
				said := ""
				for _, o := range outcomes {
					err = errors.Join(err, judge(p, o))
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

// play runs a schedule in a bubble of its own, and returns the outcome for each name.
func play(t *rapid.T, p primitive, s schedule, sum *tally) (outcomes []outcome, err error) {
	rapid.SyncTest(t, func(t *rapid.T) {
		w := build(t, p, s)
		err = w.run()
		w.settle()
		err = errors.Join(err, w.closeFailed, w.misled(), w.idle(p), w.remains(p), w.end())
		outcomes = w.outcomes()
		sum.add(w, outcomes)
		runtime.KeepAlive(w)
	})
	return outcomes, err
}
