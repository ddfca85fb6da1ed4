package redistest

import (
	"sync"
	"time"
)

// Fault is a rule in force. It knows how often it really bit, so that a test
// can tell a fault that was survived from one that never happened.
type Fault struct {
	rule Rule
	t    TB

	mu       sync.Mutex
	seen     int // matching commands, those that were skipped too
	taken    int // of which this fault took
	bites    int
	bitten   chan struct{} // closed and replaced with each bite
	disarmed bool
	late     []*late
}

func newFault(t TB, rule Rule) *Fault {
	return &Fault{t: t, rule: rule, bitten: make(chan struct{})}
}

// Bites counts the commands to which the fault really happened.
func (f *Fault) Bites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bites
}

// Await returns when the fault has bitten n times in all. It fails the test
// when nothing happens for long. To be called by the test's own goroutine.
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

// Disarm ends the fault for later commands. What it holds can still be released.
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

// Release sends what the fault kept, in the order in which it was caught and
// over connections of its own, and returns the replies. A reply is a string, an
// int64, a bool, nil, a []any of these, or an error: the server's as a
// ReplyError, or why the server could not be asked.
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

// take says whether the command is this fault's, and counts it if so.
func (f *Fault) take(cmd command) bool {
	if !f.rule.Match(cmd.args) { // the test's code: not under our mutex
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

// giveBack is for a command that was taken and then could not be harmed.
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
