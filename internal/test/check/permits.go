package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/test/history"
)

// PermitState says which units of a semaphore are in use.
type PermitState struct {
	limit   int
	used    int // units of held
	held    set // permits
	waiting set // waiters that were notified of a place in the queue, and get a permit later
	// left is the number of units that calls without a permit may have, or may wait for, although
	// their answer said that they got none. The library releases these units sooner or later, and
	// nobody sees when.
	left int
	// maybe is the same for calls without an answer. Their request may arrive at any time. A search
	// that left open when would take too long.
	maybe int
	// again has the resizes that may take effect again until they return, because the client sends
	// an unanswered resize again.
	again set
}

// Permits is a semaphore with the given number of units. Nobody gets units ahead of a known waiter.
// A refusal says correctly how many units are in use. No units come back twice.
func Permits(units int) Model[PermitState] {
	return Model[PermitState]{Initial: PermitState{limit: units}, Prepare: withPlaces, Step: PermitState.step}
}

// withPlaces removes operations that changed nothing and were in no queue. It makes two operations
// of each acquire that was notified of its place in the queue: the Join, by then, and the grant. If
// a refusal says that others are ahead, there must have been others. If there were none, withPlaces
// removes that statement.
func withPlaces(ops []history.Op) (parts []history.Op) {
	for _, op := range ops {
		if op.Outcome == history.Nothing {
			if op.Kind != history.Acquire {
				continue
			}
			op.Outcome = history.Unknown // it has nothing, but may have been in the queue for a while
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
			op.Return = op.Call // it may arrive from then on
		}
		parts = append(parts, op)
		if op.Kind == history.Resize && op.Outcome == history.Unknown { // twice in all
			parts = append(parts, op)
		}
	}
	return parts
}

// keepsPlace reports whether an acquire is known to have been in the queue from one instant until
// its grant. If the answer says that it lost its place, it lost the place without reason, because
// nothing expires.
func keepsPlace(op history.Op) bool {
	return op.Kind == history.Acquire && (op.Outcome == history.Done && op.Queued != 0 || op.Again != 0)
}

// othersWait reports whether somebody else may have been in the queue while op was in progress.
// That is a call that asked, or one that gave up, because giving up may take effect later.
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

// resizedAgain returns the possible states when a request from that instant takes effect. That is
// the same state, or the state after a resize has taken effect again. Of several resizes, the last
// one counts. A resize that returned before that instant has no more effect.
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

// take returns the states after op.
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
		if op.Kind == history.Acquire { // it may give up a place that is granted before
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
	if op.Kind == history.Try { // nobody is ahead of it, so a waiter that gave up has a permit or nothing
		s.left = min(s.left, s.limit-s.used)
	}
	return []PermitState{s}
}

// overtakes reports whether somebody waits who was notified of its place before op was requested.
func (s PermitState) overtakes(op history.Op) bool {
	return slices.ContainsFunc(s.waiting.words(), func(w string) bool {
		by, _ := readPlace(w)
		return by < op.Call
	})
}

// join adds the place of a waiter that could not get its units.
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

// limited returns the state with another limit. A waiter for more units than the limit keeps its
// place, or its call fails.
func (s PermitState) limited(limit int) PermitState {
	s.limit = limit
	return s
}

// release releases one permit, by a call or by the end of its lease. Its units come back once. The
// release of a permit that nobody knows of may come last, too.
func (s PermitState) release(op history.Op) []PermitState {
	switch {
	case s.held.has(op.Acquisition) && (op.Outcome == history.Done || op.Outcome == history.Unknown):
		s.held, s.used = s.held.without(op.Acquisition), s.used-op.Units
	case op.Outcome != history.Unknown:
		return nil // twice, or lost though nothing expires
	}
	return []PermitState{s}
}

// place is a waiter in the queue: the instant by which it was there, the number of units that it
// requests, and its later acquisition.
func place(op history.Op) string {
	return fmt.Sprintf("%d@%d@%s", op.Queued, op.Units, op.Acquisition)
}

// readPlace reads the first two parts of a word: an instant, and a number of units.
func readPlace(word string) (by int64, units int) {
	part := strings.SplitN(word, "@", 3)
	by, _ = strconv.ParseInt(part[0], 10, 64)
	units, _ = strconv.Atoi(part[1])
	return by, units
}

// set is a few words in order, as a value that can be compared.
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
