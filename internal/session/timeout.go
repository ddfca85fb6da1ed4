package session

import (
	"sync/atomic"
	"time"
)

// AdaptiveTimeout is the minimum time for the attempts of a wait over a slow link. If attempts end
// before their answers come, they use up a short window. No number of fresh ids would then get an
// answer. The zero value knows nothing.
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

// onExpired records that no attempt was answered within a window. The first attempt under the next
// id then gets the whole window. Under each further id, it gets twice as long.
func (p *AdaptiveTimeout) onExpired(window time.Duration) {
	if p != nil {
		p.min = max(window, 2*p.min)
	}
}

// latency is what a session knows of how long answers take. That is the time of the last answer
// that came after its attempt had been left behind, until an answer comes sooner. The zero value
// knows nothing.
type latency struct{ slow atomic.Int64 }

// minTimeout returns the minimum time for an attempt.
func (l *latency) minTimeout() time.Duration { return 2 * time.Duration(l.slow.Load()) }

// onLateAnswer records an answer to an attempt that was left behind.
func (l *latency) onLateAnswer(took time.Duration) { l.slow.Store(int64(took)) }

// onPromptAnswer records any other answer.
func (l *latency) onPromptAnswer(took time.Duration) {
	if slow := l.slow.Load(); slow > int64(took) {
		l.slow.CompareAndSwap(slow, int64(took))
	}
}
