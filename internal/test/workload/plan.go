package workload

import (
	"fmt"
	"time"
)

// Verb is what a step does.
type Verb uint8

const (
	Acquire      Verb = iota + 1 // wait at most For; 0: for ever. Re-enter if held
	Cancel                       // like Acquire, but cancelled after For
	Hurry                        // like Acquire, but For is the wait timeout of the lock
	Try                          // do not wait
	Unlock                       // the newest hold
	UnlockFirst                  // the oldest hold
	UnlockLate                   // the newest hold, with a context that is over
	UnlockWithin                 // the newest hold, with its own context, for at most For
	UnlockAll                    // every hold
	Sleep                        // holding or not
	Work                         // read the resource, think for For, write it
	Resize                       // to Units, for a lock that has them
	Count                        // rest for For, and compare the holds that Redis counts
	FanOut                       // take the lock, and run the siblings with the context of the hold
	Keep                         // the only hold ends, and Redis keeps the lock for For
	Pass                         // export the only hold for For, and attach it in half of that time
)

// Step is one step of a plan.
type Step struct {
	Verb  Verb
	For   time.Duration
	Units int           // to take, for a lock that has them
	First time.Duration // of Keep and Pass: the time limit of an Unlock before; 0: none
}

func (s Step) String() string {
	names := []string{"?", "acquire", "cancel", "hurry", "try", "unlock", "unlock first", "unlock late", "unlock within", "unlock all", "sleep", "work", "resize", "count", "fan out", "keep", "pass"}
	text := names[s.Verb]
	if s.Units != 0 {
		text += fmt.Sprintf(" %d", s.Units)
	}
	if s.For != 0 {
		text += fmt.Sprintf(" %v", s.For)
	}
	return text
}
