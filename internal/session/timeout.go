package session

import "time"

// AdaptiveTimeout is the minimum time for the attempts of one wait, measured over a slow link.
// Without it, attempts could end before their answers come and use up each window. No fresh id
// would then get an answer. The zero value sets no minimum.
type AdaptiveTimeout struct{ min time.Duration }

func (t *AdaptiveTimeout) value() time.Duration {
	if t == nil {
		return 0
	}
	return t.min
}

// onAnswer records how long an answer took.
func (t *AdaptiveTimeout) onAnswer(took time.Duration) {
	if t != nil {
		t.min = 2 * took
	}
}

// onExpired records that no attempt of a window was answered. The first attempt under the next id
// then gets the whole window, but no more than AttemptTimeout. The minimum doubles for each further
// id.
func (t *AdaptiveTimeout) onExpired(window time.Duration) {
	if t != nil {
		t.min = max(window, 2*t.min)
	}
}
