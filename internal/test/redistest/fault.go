package redistest

import (
	"sync"
	"time"
)

// Fault is a rule that is active. It counts how often it really bit, so that a test can distinguish
// a fault that it survived from one that never happened.
type Fault struct {
	rule Rule
	t    TB

	mu       sync.Mutex
	seen     int // matching commands, including those that were skipped
	taken    int // those of them that this fault took
	bites    int
	bitten   chan struct{} // closed and replaced with each bite
	disarmed bool
	late     []*late
}

func newFault(t TB, rule Rule) *Fault {
	return &Fault{t: t, rule: rule, bitten: make(chan struct{})}
}

// Bites counts the commands that the fault really affected.
func (f *Fault) Bites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bites
}

// Await returns when the fault has bitten n times in all. It fails the test if nothing happens for
// long. Only the test's own goroutine may call it.
func (f *Fault) Await(n int) {
	f.t.Helper()
	timeout := time.NewTimer(readyWithin)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		bites, bitten := f.bites, f.bitten
		f.mu.Unlock()
		if bites >= n {
			return
		}
		select {
		case <-bitten:
		case <-timeout.C:
			f.t.Fatalf("redistest: fault bit %d times within %s, want %d", bites, readyWithin, n)
		}
	}
}

// Disarm ends the fault for later commands. Release can still release commands that it keeps.
func (f *Fault) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disarmed = true
}

// Late counts the commands that wait for Release.
func (f *Fault) Late() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, l := range f.late {
		n += l.len()
	}
	return n
}

// Release sends the commands that the fault kept, in the order in which it caught them, over
// connections of its own. It returns the replies. A reply is a string, an int64, a bool, nil, a
// []any of these, or an error. The error is a ReplyError from the server, or the reason why no
// answer came.
func (f *Fault) Release() []any {
	f.mu.Lock()
	due := f.late
	f.late = nil
	f.mu.Unlock()
	var replies []any
	for _, l := range due {
		replies = append(replies, l.send()...)
	}
	return replies
}

// take reports whether the command is for this fault, and counts it if so.
func (f *Fault) take(cmd command) bool {
	if !f.rule.Match(cmd.args) { // the code of the test, so not under our mutex
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disarmed || f.rule.Times > 0 && f.taken == f.rule.Times {
		return false
	}
	if f.seen++; f.seen <= f.rule.Skip {
		return false
	}
	f.taken++
	return true
}

// giveBack is for a command that the fault took and then could not affect.
func (f *Fault) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
}

func (f *Fault) bite() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bites++
	close(f.bitten)
	f.bitten = make(chan struct{})
}

func (f *Fault) keep(l *late) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, l)
}
