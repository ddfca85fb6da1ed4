package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/history"
)

// PermitState is what of a semaphore is in use.
type PermitState struct {
	limit   int
	used    int // units of held
	held    set // permits
	waiting set // those that were told of a place in the queue, and are granted yet
	// left is how many units those may have, or may wait for, who were told that they
	// got none: the library gives it back sooner or later, and nobody sees when.
	left int
	// maybe is the same of those who were told nothing: their request may arrive at any
	// time. Leaving open when it does would cost a search too much.
	maybe int
	// again is the resizes that may take effect once more, until they return: one that
	// is not answered is sent again.
	again set
}

// Permits is a semaphore of so many units: they go to nobody past one who is known
// to wait, a refusal tells how many are in use and that is so, and nothing comes back
// twice.
func Permits(units int) Model[PermitState] {
	return Model[PermitState]{Initial: PermitState{limit: units}, Prepare: withPlaces, Step: PermitState.step}
}

// withPlaces leaves out what changed nothing and was in no queue, and makes two of each acquire that was
// told of its place in the queue: the Join, by then, and the grant. Who was refused
// because others were before it must have had others to wait for: where there were
// none, that is taken out.
func withPlaces(ops []history.Op) (parts []history.Op) {
	for _, op := range ops {
		if op.Outcome == history.Nothing {
			if op.Kind != history.Acquire {
				continue
			}
			op.Outcome = history.Unknown // it has nothing, and may have been in the queue for a while
		}
		if op.Ahead > 0 && !othersWait(ops, op) {
			op.Ahead = 0
		}
		if keepsPlace(op) {
			join := op
			join.Kind, join.Return, join.Ahead = history.Join, op.Queued, 0
			if othersWait(ops, join) {
				join.Ahead = 1
			}
			parts = append(parts, join)
		}
		if op.Outcome == history.Unknown && (op.Kind == history.Acquire || op.Kind == history.Try) {
			op.Return = op.Call // from then on it may arrive
		}
		parts = append(parts, op)
		if op.Kind == history.Resize && op.Outcome == history.Unknown { // twice, that is
			parts = append(parts, op)
		}
	}
	return parts
}

// keepsPlace reports whether an acquire is known to have been in the queue from one
// instant until it was granted. One that was told that it had lost its place has lost
// it without reason, for nothing expires.
func keepsPlace(op history.Op) bool {
	return op.Kind == history.Acquire && (op.Outcome == history.Done && op.Queued != 0 || op.Again != 0)
}

// othersWait reports whether somebody else may have been in the queue while op was
// under way: asking, or having given up, which may take effect later.
func othersWait(ops []history.Op, op history.Op) bool {
	return slices.ContainsFunc(ops, func(other history.Op) bool {
		return other.Kind == history.Acquire &&
			other.Call != op.Call && other.Call < op.Return && (other.Return > op.Call || other.Outcome != history.Done)
	})
}

func (s PermitState) step(op history.Op) (next []PermitState) {
	for _, before := range s.resizedAgain(op.Call) {
		next = append(next, before.take(op)...)
	}
	return next
}

// resizedAgain is what there may be when what was asked at that instant takes effect:
// the same, or what it is after a resize has taken effect again; of several the last
// counts. A resize that returned before that instant takes effect no more.
func (s PermitState) resizedAgain(asked int64) []PermitState {
	open, all := s.again, []PermitState{s}
	for _, w := range s.again.words() {
		until, limit := readPlace(w)
		if after := s.limited(limit); !slices.Contains(all, after) {
			all = append(all, after)
		}
		if until < asked {
			open = open.without(w)
		}
	}
	for i := range all {
		all[i].again = open
	}
	return all
}

// take is what op makes of it.
func (s PermitState) take(op history.Op) []PermitState {
	switch {
	case op.Kind == history.Release, op.Kind == history.Free:
		return s.release(op)
	case op.Kind == history.Resize:
		return s.resize(op)
	case op.Kind == history.Join:
		return s.join(op)
	case op.Outcome == history.Done:
		return s.grant(op)
	case op.Outcome == history.Refused:
		return s.refuse(op)
	case op.Outcome == history.TooMany && op.Units > s.limit:
		if op.Kind == history.Acquire { // it may give up a place, which may be granted before
			s.left += op.Units
		}
		return []PermitState{s}
	case op.Outcome == history.Unknown:
		s.maybe += op.Units
		return []PermitState{s}
	}
	return nil
}

func (s PermitState) grant(op history.Op) []PermitState {
	s.waiting = s.waiting.without(place(op))
	s.used += op.Units
	if s.used > s.limit || s.held.has(op.Acquisition) || s.overtakes(op) {
		return nil
	}
	s.held = s.held.with(op.Acquisition)
	if op.Kind == history.Try { // nobody is before it: whoever gave up has a permit or nothing
		s.left = min(s.left, s.limit-s.used)
	}
	return []PermitState{s}
}

// overtakes reports whether somebody waits who was told so before op was asked.
func (s PermitState) overtakes(op history.Op) bool {
	return slices.ContainsFunc(s.waiting.words(), func(w string) bool {
		by, _ := readPlace(w)
		return by < op.Call
	})
}

// join is the place in the queue of one who could not be granted.
func (s PermitState) join(op history.Op) []PermitState {
	if op.Again != 0 {
		return nil
	}
	if op.Units <= s.limit-s.used-s.left-s.maybe && op.Ahead == 0 {
		return nil
	}
	s.waiting = s.waiting.with(place(op))
	return []PermitState{s}
}

func (s PermitState) refuse(op history.Op) []PermitState {
	unseen := op.InUse - s.used
	switch {
	case unseen < 0, unseen > s.left+s.maybe:
		return nil // fewer in use than somebody has, or more than anybody can have
	case op.Units <= s.limit-op.InUse && op.Ahead == 0:
		return nil
	case op.Kind == history.Acquire:
		s.left += op.Units
	case op.Ahead == 0:
		s.left = min(s.left, unseen)
	}
	return []PermitState{s}
}

func (s PermitState) resize(op history.Op) []PermitState {
	after := s.limited(op.Units)
	switch op.Outcome {
	case history.Done:
		after.again = after.again.with(fmt.Sprintf("%d@%d", op.Return, op.Units))
		return []PermitState{after}
	case history.Unknown:
		return []PermitState{s, after}
	}
	return nil
}

// limited is with another limit. A waiter for more than that keeps its place, or is
// told.
func (s PermitState) limited(limit int) PermitState {
	s.limit = limit
	return s
}

// release is of one permit, asked for or by the end of its lease: its units come back
// once. One that nobody knows of may come last, too.
func (s PermitState) release(op history.Op) []PermitState {
	switch {
	case s.held.has(op.Acquisition) && (op.Outcome == history.Done || op.Outcome == history.Unknown):
		s.held, s.used = s.held.without(op.Acquisition), s.used-op.Units
	case op.Outcome != history.Unknown:
		return nil // twice, or lost though nothing expires
	}
	return []PermitState{s}
}

// place is a waiter in the queue: by when it was there, how many units it wants, and
// what it will become.
func place(op history.Op) string {
	return fmt.Sprintf("%d@%d@%s", op.Queued, op.Units, op.Acquisition)
}

// readPlace reads the first two parts of a word: an instant, and how many.
func readPlace(word string) (by int64, units int) {
	part := strings.SplitN(word, "@", 3)
	by, _ = strconv.ParseInt(part[0], 10, 64)
	units, _ = strconv.Atoi(part[1])
	return by, units
}

// set is a few words, sorted: a value that can be compared.
type set string

func (s set) words() []string { return strings.Fields(string(s)) }

func (s set) has(word string) bool { return slices.Contains(s.words(), word) }

func (s set) with(word string) set {
	words := append(s.words(), word)
	slices.Sort(words)
	return set(strings.Join(words, " "))
}

func (s set) without(word string) set {
	return set(strings.Join(slices.DeleteFunc(s.words(), func(w string) bool { return w == word }), " "))
}
