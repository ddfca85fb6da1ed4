package history

import (
	"fmt"
	"math"
)

// Kind is the kind of a call.
type Kind uint8

const (
	Acquire Kind = iota + 1 // waits; a re-entry if the owner holds the lock
	Try                     // does not wait; else the same
	Release                 // of one hold
	Free                    // ends all holds of the owner at once, like the end of a lease, and its place in a queue
	Join                    // of a queue; package check makes it from an Acquire that waited
	Resize                  // changes the limit of a semaphore; Units is the new limit
	Count                   // reads the holds of an owner; InUse is how many it has, Units is how many Redis counts
	Hide                    // may get this many unseen grants from now on; package check makes it from a request with an unknown outcome
	Leave                   // of a queue; package check makes it from an Acquire that waited, with an unknown outcome
)

// Outcome is the result of a call, as the client knows it.
type Outcome uint8

const (
	// Unknown may have happened, may still happen, or never happens. It is the zero value, because
	// it is the outcome of a call that never returned.
	Unknown Outcome = iota
	// Done happened.
	Done
	// Refused is definite: somebody else had the lock.
	Refused
	// Nothing is definite: no effect, for example because the client could not reach the server.
	Nothing
	// Lost is a release or a re-entry that reported the end of the hold.
	Lost
	// TooMany is definite: more units than the limit.
	TooMany
	// Removed is definite: an operator removed the waiter from the queue.
	Removed
)

// Never is the Return of a call that has not returned.
const Never = math.MaxInt64

// Op is one call. Call is a time before it began, and Return is a time after it ended. So the call
// took effect in the span between them.
type Op struct {
	Client      int     `json:"client"` // process or goroutine, with one Op at a time
	Name        string  `json:"name"`   // of the lock
	Owner       string  `json:"owner"`  // logical call chain that owns the hold
	Kind        Kind    `json:"kind"`
	Units       int     `json:"units,omitempty"` // requested units, or the new limit; 0 for locks without units
	Call        int64   `json:"call"`
	Return      int64   `json:"return"`
	Outcome     Outcome `json:"outcome"`
	Fence       int64   `json:"fence,omitempty"` // of a grant that is Done; 0 if the lock has none
	Acquisition string  `json:"acquisition,omitempty"`
	Holder      string  `json:"holder,omitempty"` // the acquisition that a refusal named
	Excused     bool    `json:"-"`                // package check: a refusal that may name a grant that no client knows of
	Earlier     int64   `json:"-"`                // package check: the largest fence below Fence that a client got
	Err         string  `json:"err,omitempty"`    // the error that the client got, for people

	// For a refusal of a semaphore: its numbers at one instant.
	InUse int `json:"in_use,omitempty"` // units
	Ahead int `json:"ahead,omitempty"`  // waiters ahead of it

	// For an Acquire that waited in a queue. 0: not known.
	Queued int64 `json:"queued,omitempty"`  // it was notified by then that it has a place
	Again  int64 `json:"again,omitempty"`   // it was notified by then that it had lost the place
	GaveUp int64 `json:"gave_up,omitempty"` // it waited at least until then, and gave up after that
}

// Window is a span in which the holder could trust its hold. It begins at the instant at which the
// acquire had returned. It ends at the call of Unlock, or at the end of trust as the actor read it.
// If the holder was notified of a loss before both, it ends at the last check before that. Both
// bounds are inside the real span. So if two windows of different owners overlap, there were two
// holders at the same time.
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
	return pick(int(k), "kind", "?", "acquire", "try", "release", "free", "join", "resize", "count", "hide", "leave")
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
		s += fmt.Sprintf(" units %d", o.Units)
	}
	if o.Acquisition != "" {
		s += " of " + o.Acquisition
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
