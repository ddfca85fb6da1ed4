package session

import (
	"sync/atomic"
	"time"
)

// Pace is how long the attempts of a wait have to be given at least, over a slow link. A
// short window is used up by attempts that are cut off before their answers, so that no
// number of fresh ids would be answered either. The zero value knows nothing.
type Pace struct{ atLeast time.Duration }

func (p *Pace) least() time.Duration {
	if p == nil {
		return 0
	}
	return p.atLeast
}

// answered notes how long an answer took.
func (p *Pace) answered(took time.Duration) {
	if p != nil {
		p.atLeast = 2 * took
	}
}

// expired notes that no attempt was answered in a window: the first one under the next id
// gets all of it, and then twice as long each time.
func (p *Pace) expired(window time.Duration) {
	if p != nil {
		p.atLeast = max(window, 2*p.atLeast)
	}
}

// link is what a session knows of how long answers take: as long as the last one that came
// after its attempt had been left, until one comes sooner. The zero value knows nothing.
type link struct{ slow atomic.Int64 }

// least is how long an attempt has to be given at least.
func (l *link) least() time.Duration { return 2 * time.Duration(l.slow.Load()) }

// late notes an answer to an attempt that was left behind.
func (l *link) late(took time.Duration) { l.slow.Store(int64(took)) }

// prompt notes any other answer.
func (l *link) prompt(took time.Duration) {
	if slow := l.slow.Load(); slow > int64(took) {
		l.slow.CompareAndSwap(slow, int64(took))
	}
}
