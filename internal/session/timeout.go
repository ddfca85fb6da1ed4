package session

import (
	"sync/atomic"
	"time"
)

// AdaptiveTimeout is the minimum time for the attempts of one wait, measured over a slow link.
// Without it, attempts could end before their answers come and use up each window. No fresh id
// would then get an answer. The zero value sets no minimum.
type AdaptiveTimeout struct{ min time.Duration }

func (p *AdaptiveTimeout) value() time.Duration {
	if p == nil {
		return 0
	}
	return p.min
}

// onAnswer records how long an answer took.
func (p *AdaptiveTimeout) onAnswer(took time.Duration) {
	if p != nil {
		p.min = 2 * took
	}
}

// onExpired records that no attempt of a window was answered. The first attempt under the next id
// then gets the whole window, but no more than AttemptTimeout. The minimum doubles for each further
// id.
func (p *AdaptiveTimeout) onExpired(window time.Duration) {
	if p != nil {
		p.min = max(window, 2*p.min)
	}
}

// latency measures how long answers take, for all operations of a session. slow is the time of the
// last answer that came after its attempt had been left behind. A faster answer replaces it. The
// zero value has measured nothing.
type latency struct{ slow atomic.Int64 }

// minTimeout returns the minimum time for an attempt: twice the measured time.
func (l *latency) minTimeout() time.Duration { return 2 * time.Duration(l.slow.Load()) }

// onLateAnswer records an answer to an attempt that was left behind.
func (l *latency) onLateAnswer(took time.Duration) { l.slow.Store(int64(took)) }

// onPromptAnswer records an answer to an attempt that was not left behind.
func (l *latency) onPromptAnswer(took time.Duration) {
	if slow := l.slow.Load(); slow > int64(took) {
		l.slow.CompareAndSwap(slow, int64(took))
	}
}
