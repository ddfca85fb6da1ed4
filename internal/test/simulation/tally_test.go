package simulation_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// tally counts what really happened in the schedules of a test. Otherwise a schedule in which no
// fault bites would look like one that the library survived.
type tally struct {
	mu                                          sync.Mutex
	schedules, bitten, late                     int
	bites                                       map[string]int
	grants, reentries, refusals, unknowns, lost int
	overwritten, rejected, accepted, ops        int
	counted                                     int            // checks of the holds that Redis counts
	queued, left, kept, again                   int            // waits in queues: all, given up, on links that worked, and those that lost their place
	kinds                                       map[string]int // successful acquires of each kind
	behind                                      int            // acquires of a plain mutex while somebody was in the queue
}

func newTally() *tally { return &tally{bites: map[string]int{}, kinds: map[string]int{}} }

func (s *tally) add(w *world, outcomes []outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedules++
	bites := len(w.bites)
	for what, n := range w.bites {
		s.bites[what] += n
	}
	for i, f := range w.s.faults {
		if n := w.faults[i].Bites(); n > 0 {
			bites++
			s.bites[f.action] += n
			s.bites["on "+f.command] += n
		}
	}
	if bites > 0 {
		s.bitten++
	}
	for _, m := range w.machines {
		for _, a := range m.actors {
			if n := a.TriedAgain(); n > 0 {
				s.bites[unlocksAgain] += n
			}
			if n := meetings(a, outcomes); n > 0 {
				s.bites[siblingsMeet] += n
			}
		}
	}
	if w.late() {
		s.late++
	}
	for _, o := range outcomes {
		s.overwritten += int(o.unchecked.Lost())
		s.rejected += int(o.checked.Rejected)
		s.accepted += int(o.checked.Accepted)
		s.counted += len(o.counts)
		s.count(o.history.Ops)
		s.countWaits(o)
		if len(w.p.kinds) > 0 {
			s.countKinds(o)
		}
	}
}

// These are drawn besides faults and events, and count as faults do.
const (
	unlocksAgain = "unlock again"
	siblingsMeet = "siblings want one lock"
	closesAHoard = "hang and close with many holds"
)

// asides returns those of a hardship.
func (h hardship) asides() (asides []string) {
	if slices.Max(h.unlockLimits) > 0 {
		asides = append(asides, unlocksAgain)
	}
	if h.fansOut {
		asides = append(asides, siblingsMeet)
	}
	if slices.Max(h.hoards) > 0 {
		asides = append(asides, closesAHoard)
	}
	return asides
}

// meetings counts the successful acquires of siblings while another sibling requested the same
// lock.
func meetings(fan *workload.Actor, outcomes []outcome) (n int) {
	if len(fan.Siblings) == 0 {
		return 0
	}
	isSibling := func(op history.Op) bool {
		return op.Kind == history.Acquire && slices.ContainsFunc(fan.Siblings, func(s workload.Sibling) bool { return s.Client == op.Client })
	}
	for _, o := range outcomes {
		for _, op := range o.history.Ops {
			if isSibling(op) && op.Outcome == history.Done && slices.ContainsFunc(o.history.Ops, func(other history.Op) bool {
				return isSibling(other) && other.Client != op.Client && other.Call < op.Return && op.Call < other.Return
			}) {
				n++
			}
		}
	}
	return n
}

func (s *tally) countKinds(o outcome) {
	for _, op := range o.history.Ops {
		if op.Kind == history.Release || op.Outcome != history.Done {
			continue
		}
		kind := o.kinds[op.Client]
		s.kinds[kind]++
		if kind == plainKind && slices.ContainsFunc(o.history.Ops, func(waiter history.Op) bool {
			return waiter.Queued != 0 && waiter.Queued < op.Call && op.Call < waiter.Return
		}) {
			s.behind++
		}
	}
}

func (s *tally) countWaits(o outcome) {
	for _, op := range o.history.Ops {
		if op.Queued == 0 {
			continue
		}
		s.queued++
		if op.GaveUp != 0 {
			s.left++
		}
		if op.Again != 0 {
			s.again++
		}
		if !o.disturbed[op.Client] {
			s.kept++
		}
	}
}

func (s *tally) count(ops []history.Op) {
	seen := map[string]bool{}
	for _, op := range ops {
		s.ops++
		switch {
		case op.Outcome == history.Unknown:
			s.unknowns++
		case op.Outcome == history.Lost:
			s.lost++
		case op.Outcome == history.Refused:
			s.refusals++
		case op.Outcome == history.Done && (op.Kind == history.Acquire || op.Kind == history.Try) && seen[op.Acquisition]:
			s.reentries++
		case op.Outcome == history.Done && (op.Kind == history.Acquire || op.Kind == history.Try):
			s.grants++
			seen[op.Acquisition] = true
		}
	}
}

// report prints the sums, and fails the test if a kind of fault never bit. A fault that is drawn
// but never happens tests nothing.
func (s *tally) report(t *testing.T, p primitive, h hardship) {
	line := fmt.Sprintf("%s: %d schedules, of which %d met a fault, in %d something came late; %d calls: %d grants, %d re-entries, %d refusals, %d unknown, %d lost; ",
		t.Name(), s.schedules, s.bitten, s.late, s.ops, s.grants, s.reentries, s.refusals, s.unknowns, s.lost)
	line += fmt.Sprintf("%d writes accepted, %d rejected, %d overwritten where nobody looked at fences\n", s.accepted, s.rejected, s.overwritten)
	if p.queued {
		line += fmt.Sprintf("  queued: %d waits, of which %d were given up, %d lost their place, %d had a link without faults\n", s.queued, s.left, s.again, s.kept)
	}
	if len(p.kinds) > 0 {
		line += fmt.Sprintf("  acquires: %v; %d plain ones were asked for while somebody queued\n", s.kinds, s.behind)
	}
	var bites []string
	for _, what := range slices.Sorted(maps.Keys(s.bites)) {
		bites = append(bites, fmt.Sprintf("%s %d", what, s.bites[what]))
	}
	fmt.Print(line, "  bites: ", strings.Join(bites, ", "), "\n")
	if wanted := checks(); s.schedules < wanted {
		t.Errorf("%d of %d schedules: the time was over", s.schedules, wanted)
	}
	if s.schedules < enough {
		return // too few schedules for the rare ones
	}
	if h.counts && p.counted && s.counted == 0 {
		t.Errorf("nobody looked at the holds that Redis counts in %d schedules", s.schedules)
	}
	if p.queued && (s.left == 0 || s.kept == 0 || h.losesPlaces() && s.again == 0) {
		t.Errorf("nobody gave up in the queue, or kept a place, or lost one, in %d schedules", s.schedules)
	}
	if len(p.kinds) > 0 && (s.behind == 0 || s.kinds[plainKind] == 0 || s.kinds[fairKind] == 0 || s.kinds[redissonKind] == 0) {
		t.Errorf("a kind of lock was never granted, or no plain one asked for behind a queue, in %d schedules", s.schedules)
	}
	for _, what := range slices.Concat(h.actions, h.events, h.asides()) {
		if s.bites[what] == 0 {
			t.Errorf("%s never happened in %d schedules", what, s.schedules)
		}
	}
	for _, what := range p.kindsOfCommands() {
		if s.bites["on "+what] == 0 {
			t.Errorf("no fault ever hit a %s in %d schedules", what, s.schedules)
		}
	}
}

// enough is a number of schedules that have every fault in them beyond doubt.
const enough = 2000

// checks is the number of schedules that rapid should run. rapid stops early, without an error,
// when the time of the test is nearly over.
func checks() int {
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if err != nil {
		panic(err)
	}
	if testing.Short() { // as rapid does
		n /= 5
	}
	return n
}
