package check

import (
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/test/history"
)

// FairState says who has a lock, and who waits for it.
type FairState struct {
	lock MutexState
	// queue has the waiters in order, with a blank behind each. An entry is an owner that is next
	// when all entries before it are gone, or one that may still be there or not. The latter is
	// "~owner", which may have lost its place, or "~", which gave up or has an unknown outcome. If
	// such a waiter gets a grant, it releases the grant, and nobody sees when.
	queue string
	// joined is the largest fence of the waiters that have joined the queue, and that get the lock
	// later or have it.
	joined int64
	// hidden is how many grants requests with an unknown outcome may still get, which nobody sees.
	hidden int
}

// mayBeGone marks waiters that others need not wait for.
const mayBeGone = "~"

// FairMutex is a [ReentrantMutex] that is granted in order. An acquire takes effect twice: it joins
// the queue at its end, and it gets the lock when it is the first. If it had to wait, it was
// notified of its place after it had joined. It was notified only if the lock was not free for it.
// If a waiter gives up, others may get ahead of it from then on, but no sooner. A Try gets the lock
// without getting ahead of anybody.
func FairMutex() Model[FairState] { return Model[FairState]{Prepare: takenApart, Step: fairStep} }

// takenApart makes two operations of each acquire that waited. The first says that it joined, and
// the second says what happened then. takenApart also makes refusals name the owner that had the
// lock, or one that no client knows of.
func takenApart(ops []history.Op) (parts []history.Op) {
	owners, ends := map[string]string{}, map[string]int64{}
	for _, op := range ops {
		if op.Outcome == history.Done {
			owners[op.Acquisition] = op.Owner
		}
		if op.Kind == history.Release || op.Kind == history.Free {
			ends[op.Owner] = max(ends[op.Owner], op.Return)
		}
	}
	entered := map[string]bool{}
	for _, op := range ops {
		if op.Kind == history.Acquire {
			parts = append(parts, joined(op, entered[op.Acquisition])...)
		}
		switch {
		case op.Outcome == history.Done:
			entered[op.Acquisition] = true
		case op.Outcome == history.Nothing && op.Kind != history.Acquire:
			continue
		case op.Outcome == history.Unknown && (op.Kind == history.Acquire || op.Kind == history.Try):
			parts = append(parts, unclear(op, ends[op.Owner])...)
			continue
		case op.Kind == history.Acquire:
			op.Holder = "" // the last holder that it knew of, perhaps not the one when it gave up
			if op.Queued != 0 {
				op.Call = max(op.Queued, op.GaveUp)
			}
		case op.Holder != "":
			if owner, answered := owners[op.Holder]; answered {
				op.Holder = owner
			} else {
				op.Holder = mayBeGone
			}
		}
		parts = append(parts, op)
	}
	freed := map[string]bool{} // owners that may have lost a place
	for _, op := range ops {
		freed[op.Owner] = freed[op.Owner] || op.Kind == history.Free
	}
	return withEarlier(withEarlier(parts, isGrant), func(op history.Op) bool { return isOnlyPlace(op) && !freed[op.Owner] })
}

// isOnlyPlace is about the place of a waiter that got the lock and lost no place before. Such
// waiters joined in the order of their grants.
func isOnlyPlace(op history.Op) bool {
	return op.Kind == history.Join && op.Fence > 0 && op.Again == 0
}

// unclear is what a request with an unknown outcome may have done, and may still do. A waiter may
// have had a place twice, because its last command may arrive after the command that gave up the
// place. A search that tries every time at which a place may have come and gone does not end. So
// such a place counts when somebody needs it as an explanation, and a place that others know of is
// gone as soon as it may be. Both only permit more than anything else would. A re-entry matters
// until its owner has released the lock for the last time.
func unclear(op history.Op, released int64) (parts []history.Op) {
	at := func(when int64, k history.Kind, places int) history.Op {
		made := op
		made.Kind, made.Units, made.Call, made.Return = k, places, when, when
		return made
	}
	switch {
	case op.Queued != 0:
		parts = append(parts, at(op.Call, history.Hide, 1), at(max(op.Queued, op.GaveUp), history.Leave, 0))
	case op.Kind == history.Try:
		parts = append(parts, at(op.Call, history.Hide, 1))
	default:
		parts = append(parts, at(op.Call, history.Hide, 2))
	}
	if released > op.Call {
		op.Return = min(op.Return, released)
		parts = append(parts, op, op)
	}
	return parts
}

// joined says that an acquire joined the queue, as far as anybody knows. Its outcome is Refused if
// the client was notified that it has to wait. It is Lost if the client was notified that it had
// lost its place.
func joined(op history.Op, again bool) []history.Op {
	join := op
	join.Kind = history.Join
	switch {
	case op.Again != 0:
		join.Outcome, join.Return = history.Lost, op.Again
	case op.Queued != 0:
		join.Outcome, join.Return = history.Refused, op.Queued
	case op.Outcome != history.Done, again:
		return nil
	}
	return []history.Op{join}
}

func fairStep(s FairState, op history.Op) []FairState {
	mine := s.lock.owner != "" && s.lock.owner == op.Owner
	switch {
	case op.Kind == history.Join:
		return s.join(op)
	case op.Kind == history.Hide:
		s.hidden += op.Units
		return []FairState{s}
	case op.Kind == history.Leave:
		return s.leave(op.Owner, mayBeGone)
	case op.Kind == history.Free && op.Outcome == history.Done && !s.lock.granted(op):
		return nil
	case op.Kind == history.Free && !mine:
		return s.leave(op.Owner, mayBeGone+op.Owner)
	case mine && op.Outcome == history.Nothing:
		return []FairState{s}
	case mine, op.Kind == history.Release:
		return s.with(s.queue, op)
	case op.Outcome == history.Done:
		return s.grant(op)
	case op.Outcome == history.Lost:
		return nil
	case op.Outcome == history.Unknown:
		return []FairState{s} // no re-entry
	}
	if op.Outcome == history.Refused {
		var explained bool
		if s, explained = s.explain(op.Holder); !explained {
			return nil
		}
	}
	if op.Kind == history.Try {
		return []FairState{s}
	}
	return s.leave(op.Owner, mayBeGone)
}

// explain reports why a request waits or is refused: an owner has the lock, or without an owner
// anybody. If there is no other reason, a hidden grant is one.
func (s FairState) explain(owner string) (explained FairState, ok bool) {
	known := owner != "" && owner != mayBeGone
	if !s.busy(owner) && s.lock.owner == "" && !known && s.hidden > 0 {
		s.hidden--
		s.queue += mayBeGone + " "
	}
	return s, s.busy(owner)
}

// with changes the lock as a lock without a queue would.
func (s FairState) with(queue string, op history.Op) (next []FairState) {
	for _, lock := range (mutexRules{reentrant: true, fenced: true}).step(s.lock, op) {
		changed := s
		changed.lock, changed.queue = lock, queue
		next = append(next, changed)
	}
	return next
}

func (s FairState) join(op history.Op) []FairState {
	if op.Outcome == history.Lost {
		return nil // lost its place without reason
	}
	if op.Outcome == history.Refused {
		var explained bool
		if s, explained = s.explain(""); !explained {
			return nil // has nobody to wait for
		}
	}
	if isOnlyPlace(op) {
		if s.joined < op.Earlier {
			return nil // a waiter that is granted the lock before this one has not joined
		}
		s.joined = max(s.joined, op.Fence)
	}
	s.queue += op.Owner + " "
	return []FairState{s}
}

// grant says that all waiters before this one are gone. They had left, or may have been granted the
// lock and released it meanwhile.
func (s FairState) grant(op history.Op) []FairState {
	all := strings.Fields(s.queue)
	at := len(all)
	if op.Kind == history.Acquire {
		if at = find(all, op.Owner); at < 0 {
			return nil
		}
	}
	var left []string
	for i, waiter := range all {
		switch {
		case i == at:
		case i < at && !strings.HasPrefix(waiter, mayBeGone):
			return nil // this one got ahead of it
		case i > at || waiter != mayBeGone: // a waiter that lost its place may come back to it
			left = append(left, waiter)
		}
	}
	return s.with(line(left), op)
}

// leave says that nobody waits for an owner any more.
func (s FairState) leave(owner, as string) []FairState {
	all := strings.Fields(s.queue)
	switch at := find(all, owner); {
	case at >= 0:
		all[at] = as
	case as == mayBeGone: // it may have joined without an answer
		all = append(all, as)
	}
	s.queue = line(all)
	return []FairState{s}
}

// busy reports whether an owner has the lock. Without an owner, it reports whether anybody has the
// lock, or gets it before a request that comes now. "~" is a waiter that has the lock and does not
// know it yet.
func (s FairState) busy(owner string) bool {
	switch owner {
	case "":
		return s.lock.owner != "" || s.queue != ""
	case mayBeGone:
		return s.lock.owner == "" && s.queue != ""
	}
	return s.lock.owner == owner
}

func find(all []string, owner string) int {
	return slices.IndexFunc(all, func(waiter string) bool { return strings.TrimPrefix(waiter, mayBeGone) == owner })
}

// line is a queue. Several adjacent waiters that gave up count as one.
func line(waiters []string) (queue string) {
	for i, waiter := range waiters {
		if waiter != mayBeGone || i == 0 || waiters[i-1] != mayBeGone {
			queue += waiter + " "
		}
	}
	return queue
}
