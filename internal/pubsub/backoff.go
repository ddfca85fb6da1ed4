package pubsub

import (
	"math/rand/v2"
	"time"
)

// backoff computes the pause before the next attempt. It doubles from least to most, and half of it
// is random. Randomness keeps a thousand clients of a restarted server apart. A pause that is never
// near zero keeps one client from spinning.
type backoff struct {
	least, most time.Duration
	last        time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.least), b.most)
	return b.last/2 + rand.N(b.last/2+1)
}

func (b *backoff) reset() { b.last = 0 }
