package session

import (
	"sync/atomic"
	"time"
)

// Pace is the minimum time for the attempts of a wait over a slow link. If attempts end before
// their answers come, they use up a short window. No number of fresh ids would then get an answer.
// The zero value knows nothing.
type Pace struct{ atLeast time.Duration }

func (p *Pace) least() time.Duration {
	if p == nil {
		return 0
	}
	return p.atLeast
}

// answered records how long an answer took.
func (p *Pace) answered(took time.Duration) {
	if p != nil {
		p.atLeast = 2 * took
	}
}

// expired records that no attempt was answered within a window. The first attempt under the next id
// then gets the whole window. Under each further id, it gets twice as long.
func (p *Pace) expired(window time.Duration) {
	if p != nil {
		p.atLeast = max(window, 2*p.atLeast)
	}
}

// link is what a session knows of how long answers take. That is the time of the last answer that
// came after its attempt had been left behind, until an answer comes sooner. The zero value knows
// nothing.
type link struct{ slow atomic.Int64 }

// least returns the minimum time for an attempt.
func (l *link) least() time.Duration { return 2 * time.Duration(l.slow.Load()) }

// late records an answer to an attempt that was left behind.
func (l *link) late(took time.Duration) { l.slow.Store(int64(took)) }

// prompt records any other answer.
func (l *link) prompt(took time.Duration) {
	if slow := l.slow.Load(); slow > int64(took) {
		l.slow.CompareAndSwap(slow, int64(took))
	}
}
