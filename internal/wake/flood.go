package wake

import "time"

// Flood counts wake-ups in a row that proved false. Anybody may publish on a channel; who
// floods it must not make a waiter flood Redis with questions. The zero value has seen
// none.
type Flood struct{ n int }

// Pause notes another false one, and returns for how long further ones are not to
// count: not at all after the first few, and then longer each time.
func (f *Flood) Pause() time.Duration {
	const few, most = 2, 100 * time.Millisecond
	f.n++
	if f.n <= few {
		return 0
	}
	return min(time.Millisecond<<min(f.n-few-1, 10), most)
}
