package pubsub

import "time"

// Throttle counts wake-ups in a row that proved false. Anybody may publish on a channel. A flood of
// messages must not make a waiter flood Redis with commands. The zero value has counted none.
type Throttle struct{ n int }

// Pause counts another false wake-up. It returns for how long further ones do not count: not at all
// after the first few, and then longer each time.
func (t *Throttle) Pause() time.Duration {
	const few, most = 2, 100 * time.Millisecond
	t.n++
	if t.n <= few {
		return 0
	}
	return min(time.Millisecond<<min(t.n-few-1, 10), most)
}
