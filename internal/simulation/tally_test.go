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

	"github.com/redlatch/redlatch/internal/history"
)

// tally counts what really happened in the schedules of a test, so that one in
// which nothing bites does not pass for one that was survived.
type tally struct {
	mu                                          sync.Mutex
	schedules, bitten, late                     int
	bites                                       map[string]int
	grants, reentries, refusals, unknowns, lost int
	overwritten, rejected, accepted, ops        int
	queued, left, kept, again                   int // waits in queues: all, given up, on whole links, with the place lost
}

func newTally() *tally { return &tally{bites: map[string]int{}} }

func (s *tally) add(w *world, o outcome) {
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
	if o.late {
		s.late++
	}
	s.overwritten += int(o.unchecked.Lost())
	s.rejected += int(o.checked.Rejected)
	s.accepted += int(o.checked.Accepted)
	s.count(o.history.Ops)
	s.countWaits(o)
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
		case op.Outcome == history.Done && op.Kind != history.Release && seen[op.Acquisition]:
			s.reentries++
		case op.Outcome == history.Done && op.Kind != history.Release:
			s.grants++
			seen[op.Acquisition] = true
		}
	}
}

// report prints the sums, and fails the test if a kind of fault never bit: what
// is drawn and never happens is not tested.
func (s *tally) report(t *testing.T, p primitive, h hardship) {
	line := fmt.Sprintf("%s: %d schedules, of which %d met a fault, in %d something came late; %d calls: %d grants, %d re-entries, %d refusals, %d unknown, %d lost; ",
		t.Name(), s.schedules, s.bitten, s.late, s.ops, s.grants, s.reentries, s.refusals, s.unknowns, s.lost)
	line += fmt.Sprintf("%d writes accepted, %d rejected, %d overwritten where nobody looked at fences\n", s.accepted, s.rejected, s.overwritten)
	if p.queued {
		line += fmt.Sprintf("  queued: %d waits, of which %d were given up, %d lost their place, %d had a link without faults\n", s.queued, s.left, s.again, s.kept)
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
		return // too few for the rare ones
	}
	if p.queued && (s.left == 0 || s.kept == 0 || h.expires && s.again == 0) {
		t.Errorf("nobody gave up in the queue, or kept a place, or lost one, in %d schedules", s.schedules)
	}
	for _, what := range slices.Concat(h.actions, h.events) {
		if s.bites[what] == 0 {
			t.Errorf("%s never happened in %d schedules", what, s.schedules)
		}
	}
	for _, what := range p.kinds() {
		if s.bites["on "+what] == 0 {
			t.Errorf("no fault ever hit a %s in %d schedules", what, s.schedules)
		}
	}
}

// enough is how many schedules have every fault in them, beyond doubt.
const enough = 2000

// checks is how many schedules rapid is to play. It stops early, and is content,
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
