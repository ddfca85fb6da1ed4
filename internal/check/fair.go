package check

import (
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/history"
)

// FairState is who has a lock, and who waits for it.
type FairState struct {
	lock MutexState
	// queue is those who wait, in order, with a blank behind each: an owner that
	// is next when all before it are gone; or one that may be there yet or not:
	// "~owner", which may have lost its place, or "~", which gave up, or of which
	// nobody knows. What such a one is granted it gives back, and nobody sees when.
	queue string
}

// mayBeGone marks those who need not be waited for.
const mayBeGone = "~"

// FairMutex is a [ReentrantMutex] that is given in order. An acquire takes effect
// twice: it joins the queue, at its end, and it is granted, when it is the first. By
// when it had joined it was told, if it had to wait; and it was told so only if the
// lock was not free for it. Who gives up may be passed over from then on, and no
// sooner. To try is to be granted without passing over anybody.
func FairMutex() Model[FairState] { return Model[FairState]{Prepare: takenApart, Step: fairStep} }

// takenApart makes two of each acquire that waited: the first says that it joined,
// the second what became of that. One of which nobody knows may have had a place twice:
// what it sent last may arrive after what gave that up. And it has refusals name the
// owner who had the lock, or one that nobody was told of.
func takenApart(ops []history.Op) (parts []history.Op) {
	owners := map[string]string{}
	for _, op := range ops {
		if op.Outcome == history.Done {
			owners[op.Acquisition] = op.Owner
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
		case op.Kind == history.Acquire:
			op.Holder = "" // the last it heard of, and perhaps not when it gave up
			if op.Outcome == history.Unknown {
				parts = append(parts, op)
			}
			if op.Queued != 0 {
				op.Call = max(op.Queued, op.GaveUp)
			}
		case op.Holder != "":
			if owner, told := owners[op.Holder]; told {
				op.Holder = owner
			} else {
				op.Holder = mayBeGone
			}
		}
		parts = append(parts, op)
	}
	return parts
}

// joined is that an acquire joined the queue, as far as anybody knows: Refused, when
// it was told that it has to wait; Lost, when it was told that it had lost its place.
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
	case op.Kind == history.Free && op.Outcome == history.Done && !s.lock.told(op):
		return nil
	case op.Kind == history.Free && !mine:
		return s.leave(op.Owner, mayBeGone+op.Owner)
	case mine && op.Outcome == history.Nothing:
		return []FairState{s}
	case mine, op.Kind == history.Release:
		return s.with(s.queue, op)
	case op.Outcome == history.Done:
		return s.grant(op)
	case op.Outcome == history.Refused && !s.busy(op.Holder):
		return nil
	case op.Kind == history.Try && op.Outcome == history.Refused:
		return []FairState{s}
	case op.Outcome == history.Lost:
		return nil
	}
	return s.leave(op.Owner, mayBeGone)
}

// with does to the lock what one without a queue does.
func (s FairState) with(queue string, op history.Op) (next []FairState) {
	for _, lock := range (mutexRules{reentrant: true, fenced: true}).step(s.lock, op) {
		next = append(next, FairState{lock: lock, queue: queue})
	}
	return next
}

func (s FairState) join(op history.Op) []FairState {
	if op.Outcome == history.Lost || op.Outcome == history.Refused && !s.busy("") {
		return nil // lost its place without reason, or has to wait for nobody
	}
	s.queue += op.Owner + " "
	return []FairState{s}
}

// grant is that all before this one are gone: they were nobody, or may have been
// granted and have given back meanwhile.
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
			return nil // it was passed over
		case i > at || waiter != mayBeGone: // who lost its place may come back to it
			left = append(left, waiter)
		}
	}
	return s.with(line(left), op)
}

// leave is that nobody waits for an owner any more.
func (s FairState) leave(owner, as string) []FairState {
	all := strings.Fields(s.queue)
	switch at := find(all, owner); {
	case at >= 0:
		all[at] = as
	case as == mayBeGone: // it may have joined without being told
		all = append(all, as)
	}
	s.queue = line(all)
	return []FairState{s}
}

// busy reports whether an owner has the lock; without one, whether anybody has it, or
// is to have it before one who comes now; "~" is such a one, who has it and does not
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

// line is a queue. Of several side by side that gave up, one says all.
func line(waiters []string) (queue string) {
	for i, waiter := range waiters {
		if waiter != mayBeGone || i == 0 || waiters[i-1] != mayBeGone {
			queue += waiter + " "
		}
	}
	return queue
}
