package session

import "time"

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
