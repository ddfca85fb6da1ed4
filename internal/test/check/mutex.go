package check

import (
	"slices"

	"github.com/redlatch/redlatch/internal/test/history"
)

// MutexState says who has a lock.
type MutexState struct {
	owner   string // empty: free
	count   int    // of holds
	fence   int64  // of the grant; 0: not known
	highest int64  // largest fence in any answer
	// ghost: no client knows of this grant. The library releases it sooner or later, and nobody
	// sees when.
	ghost bool
}

// ReentrantMutex is a lock that its owner may take again, with fences that grow.
func ReentrantMutex() Model[MutexState] { return mutexRules{reentrant: true, fenced: true}.model() }

// PlainMutex is a lock that nobody may take twice, without fences.
func PlainMutex() Model[MutexState] { return mutexRules{}.model() }

type mutexRules struct{ reentrant, fenced bool }

func (r mutexRules) model() Model[MutexState] {
	return Model[MutexState]{Prepare: func(ops []history.Op) []history.Op { return withEarlier(withLeftovers(ops), isGrant) }, Step: r.step}
}

func isGrant(op history.Op) bool {
	return op.Outcome == history.Done && (op.Kind == history.Acquire || op.Kind == history.Try) && op.Fence > 0
}

// withEarlier says for some operations which fence came before theirs. Fences grow, so grants have
// only one possible order. A search that does not know it tries the grant of a patient waiter too
// early, and notices that much later.
func withEarlier(ops []history.Op, some func(op history.Op) bool) []history.Op {
	fences := []int64{0}
	for _, op := range ops {
		if some(op) {
			fences = append(fences, op.Fence)
		}
	}
	slices.Sort(fences)
	fences = slices.Compact(fences)
	for i, op := range ops {
		if some(op) {
			at, _ := slices.BinarySearch(fences, op.Fence)
			ops[i].Earlier = fences[at-1]
		}
	}
	return ops
}

// withLeftovers removes operations that changed nothing, and adds grants that no client knows of.
func withLeftovers(ops []history.Op) []history.Op {
	effective := slices.DeleteFunc(slices.Clone(ops), func(op history.Op) bool { return op.Outcome == history.Nothing })
	return append(effective, leftovers(ops)...)
}

func (r mutexRules) step(s MutexState, op history.Op) []MutexState {
	switch {
	case op.Kind == history.Release, op.Kind == history.Free:
		return r.release(s, op)
	case op.Outcome == history.Done:
		return r.grant(s, op)
	case op.Outcome == history.Refused && s.owner == "" && op.Excused:
		return []MutexState{s}
	case op.Outcome == history.Refused && s.owner != "" && (s.owner != op.Owner || !r.reentrant):
		return []MutexState{s}
	case op.Outcome == history.Unknown:
		return append(r.unknownGrant(s, op), s)
	}
	return nil // refused although the lock is free or its own, or lost without reason
}

func (r mutexRules) grant(s MutexState, op history.Op) (next []MutexState) {
	fits := !r.fenced || op.Fence > s.highest && s.highest >= op.Earlier
	if fits && (s.owner == "" || s.ghost) {
		next = append(next, MutexState{owner: op.Owner, count: 1, fence: op.Fence, highest: op.Fence})
	}
	if s.owner != op.Owner || !r.reentrant {
		return next
	}
	switch again := s; {
	case s.fence == op.Fence:
		again.count++
		next = append(next, again)
	case s.fence == 0 && fits: // the first answer with the fence of this grant
		next = append(next, MutexState{owner: op.Owner, count: s.count + 1, fence: op.Fence, highest: op.Fence})
	}
	return next
}

// unknownGrant is the state if the grant did happen.
func (r mutexRules) unknownGrant(s MutexState, op history.Op) []MutexState {
	switch {
	case s.owner == "", s.ghost && s.owner != op.Owner:
		return []MutexState{{owner: op.Owner, count: 1, highest: s.highest, ghost: true}}
	case s.owner == op.Owner && r.reentrant:
		s.count++
		return []MutexState{s}
	}
	return nil
}

func (r mutexRules) release(s MutexState, op history.Op) []MutexState {
	after := s
	if after.count--; after.count <= 0 || op.Kind == history.Free {
		after = MutexState{highest: s.highest}
	}
	mine := s.owner != "" && s.owner == op.Owner
	switch op.Outcome {
	case history.Done:
		if mine {
			return []MutexState{after}
		}
		if op.Kind == history.Free && s.granted(op) { // it frees whatever there was, which may be nothing
			return []MutexState{s}
		}
	case history.Unknown:
		if mine {
			return []MutexState{s, after}
		}
		return []MutexState{s}
	}
	return nil // lost although nothing expires, or another owner's
}

// granted reports whether the grant that op ends has been made.
func (s MutexState) granted(op history.Op) bool { return op.Fence <= s.highest }

// leftovers are grants that waiters left behind for a moment when they gave up. Such a waiter had
// sent another command, or waited in the line of its own process, and left when the grant came. A
// refusal names such a grant, and no client knows of it. It was made after the first of those
// waiters came, and before the answer of the first refusal that names it. It does not matter which
// waiter it belonged to, and a search that left that open would take long.
func leftovers(ops []history.Op) (more []history.Op) {
	answered, met := map[string]bool{}, map[string]int64{}
	begun := int64(history.Never)
	for _, op := range ops {
		switch {
		case op.Outcome == history.Done:
			answered[op.Acquisition] = true
		case op.Outcome == history.Refused && op.Holder != "":
			if first, again := met[op.Holder]; !again || op.Return < first {
				met[op.Holder] = op.Return
			}
		}
		if op.Kind == history.Acquire && (op.Outcome == history.Refused || op.Outcome == history.Nothing) {
			begun = min(begun, op.Call)
		}
	}
	for holder, at := range met {
		if !answered[holder] && begun < at {
			more = append(more, history.Op{
				Client: -1 - len(more), Name: ops[0].Name, Owner: holder, Kind: history.Acquire, Outcome: history.Unknown, Call: begun, Return: at,
			})
		}
	}
	return more
}
