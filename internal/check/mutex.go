package check

import "github.com/redlatch/redlatch/internal/history"

// MutexState is who has a lock.
type MutexState struct {
	owner   string // empty: free
	count   int    // of holds
	fence   int64  // of the grant; 0: not known
	highest int64  // fence that was ever told
	// ghost: nobody was told of this grant. The library gives it back sooner or
	// later, and nobody sees when.
	ghost bool
}

// ReentrantMutex is a lock that its owner may take again, with fences that grow.
func ReentrantMutex() Model[MutexState] { return mutexRules{reentrant: true, fenced: true}.model() }

// PlainMutex is a lock that nobody may take twice, without fences.
func PlainMutex() Model[MutexState] { return mutexRules{}.model() }

type mutexRules struct{ reentrant, fenced bool }

func (r mutexRules) model() Model[MutexState] { return Model[MutexState]{Step: r.step} }

func (r mutexRules) step(s MutexState, op history.Op) []MutexState {
	switch {
	case op.Kind == history.Release, op.Kind == history.Free:
		return r.release(s, op)
	case op.Outcome == history.Done:
		return r.grant(s, op)
	case op.Outcome == history.Refused && s.owner != "" && (s.owner != op.Owner || !r.reentrant):
		return []MutexState{s}
	case op.Outcome == history.Unknown:
		return append(r.unknownGrant(s, op), s)
	}
	return nil // refused though free or one's own, or lost without reason
}

func (r mutexRules) grant(s MutexState, op history.Op) (next []MutexState) {
	fits := !r.fenced || op.Fence > s.highest
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
	case s.fence == 0 && fits: // of a grant that nobody was told of, and now is
		next = append(next, MutexState{owner: op.Owner, count: s.count + 1, fence: op.Fence, highest: op.Fence})
	}
	return next
}

// unknownGrant is the state if it did happen.
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
		if op.Kind == history.Free { // whatever there was: nothing is fine too
			return []MutexState{s}
		}
	case history.Unknown:
		if mine {
			return []MutexState{s, after}
		}
		return []MutexState{s}
	}
	return nil // lost, though nothing expires, or of somebody else
}
