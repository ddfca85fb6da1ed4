package wake

import (
	"math/rand/v2"
	"time"
)

// backoff is the pause before the next try: doubling from least to most, half of
// it chance. Chance keeps a thousand clients of a restarted server apart; a pause
// that is never near zero keeps one client from spinning.
type backoff struct {
	least, most time.Duration
	last        time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.least), b.most)
	return b.last/2 + rand.N(b.last/2+1)
}

func (b *backoff) reset() { b.last = 0 }
