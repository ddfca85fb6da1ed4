package history

import (
	"fmt"
	"math"
)

// Kind is what a client asked for.
type Kind uint8

const (
	Acquire Kind = iota + 1 // waits; by an owner that holds, a re-entry
	Try                     // does not wait; else the same
	Release                 // of one hold
	Free                    // of all holds of the owner at once, as the end of a lease is; and of its place in a queue
	Join                    // of a queue: package check makes it out of an Acquire that waited
	Resize                  // of what a semaphore has: Units is the new limit
	Count                   // of the holds of an owner that has InUse of them: Units is what Redis counts
)

// Outcome is what the client was told.
type Outcome uint8

const (
	// Unknown may have happened, may happen yet, or never. The zero value,
	// because it is what a call that never returned amounts to.
	Unknown Outcome = iota
	// Done happened.
	Done
	// Refused is definite: somebody else had it.
	Refused
	// Nothing is definite: no effect, as when the server could not be reached.
	Nothing
	// Lost is a release or a re-entry that was told that the hold had ended.
	Lost
	// TooMany is definite: more units than there are.
	TooMany
	// Removed is definite: an operator took it out of the queue.
	Removed
)

// Never is the Return of a call that has not returned.
const Never = math.MaxInt64

// Op is one call. Call was stamped before it began and Return after it ended,
// so that the span between holds the instant at which it took effect.
type Op struct {
	Client      int     `json:"client"` // process or goroutine: one Op at a time
	Name        string  `json:"name"`   // of the lock
	Owner       string  `json:"owner"`  // logical chain: who has it
	Kind        Kind    `json:"kind"`
	Units       int     `json:"units,omitempty"` // permits asked for, or the new limit; 0 for locks that have none
	Call        int64   `json:"call"`
	Return      int64   `json:"return"`
	Outcome     Outcome `json:"outcome"`
	Fence       int64   `json:"fence,omitempty"` // of a grant that is Done; 0 if the lock has none
	Acquisition string  `json:"acquisition,omitempty"`
	Holder      string  `json:"holder,omitempty"` // the acquisition that a refusal named
	Err         string  `json:"err,omitempty"`    // what the client was told, for people

	// What the refusal of a semaphore said, of one instant.
	InUse int `json:"in_use,omitempty"` // units
	Ahead int `json:"ahead,omitempty"`  // waiters that are before it

	// Of an Acquire that waited in a queue; 0: not that anybody knows.
	Queued int64 `json:"queued,omitempty"`  // it was told by then that it has a place
	Again  int64 `json:"again,omitempty"`   // it was told by then that it had lost the place
	GaveUp int64 `json:"gave_up,omitempty"` // it waited up to then at least, and gave up after that
}

// Window is a span in which the library told the holder that the hold may be
// trusted: from the instant at which the acquire had returned to the first of: Unlock
// called, end of trust as read, last look before a loss that was told earlier than
// that. Both are inner bounds, so two
// windows of different owners that overlap are two holders at one time.
type Window struct {
	Client      int    `json:"client"`
	Name        string `json:"name"`
	Owner       string `json:"owner"`
	Units       int    `json:"units,omitempty"`
	Fence       int64  `json:"fence,omitempty"`
	Acquisition string `json:"acquisition,omitempty"`
	Call        int64  `json:"call"` // of the acquire
	From        int64  `json:"from"`
	Until       int64  `json:"until"`
}

func (k Kind) String() string {
	return pick(int(k), "kind", "?", "acquire", "try", "release", "free", "join", "resize", "count")
}

func (o Outcome) String() string {
	return pick(int(o), "outcome", "unknown", "done", "refused", "nothing", "lost", "too many", "removed")
}

func pick(i int, what string, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func (o Op) String() string {
	end := "never"
	if o.Return != Never {
		end = fmt.Sprint(o.Return)
	}
	s := fmt.Sprintf("[%d, %s] client %d owner %s: %v %s -> %v", o.Call, end, o.Client, o.Owner, o.Kind, o.Name, o.Outcome)
	if o.Fence != 0 {
		s += fmt.Sprintf(" fence %d", o.Fence)
	}
	if o.Units != 0 {
		s += fmt.Sprintf(" units %d of %s", o.Units, o.Acquisition)
	}
	if o.Queued != 0 {
		s += fmt.Sprintf(" queued by %d", o.Queued)
	}
	if o.Again != 0 {
		s += fmt.Sprintf(", again by %d", o.Again)
	}
	if o.GaveUp != 0 {
		s += fmt.Sprintf(", gave up after %d", o.GaveUp)
	}
	if o.Err != "" {
		s += " (" + o.Err + ")"
	}
	return s
}

func (w Window) String() string {
	return fmt.Sprintf("[%d, %d] client %d owner %s trusts %s, fence %d", w.From, w.Until, w.Client, w.Owner, w.Name, w.Fence)
}
