package watchdog

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Instants are nanoseconds, in eight bytes instead of a time.Time's twenty-four:
// on the monotonic clock since the watchdog was made, on the wall clock since 1970.

// never is an instant that does not come.
const never int64 = math.MaxInt64

// instantAfter returns at + d, or never if that would overflow: a lease or a maximum hold of "for
// ever" must not wrap around into the past.
func instantAfter(at int64, d time.Duration) int64 {
	if d > 0 && at > never-int64(d) {
		return never
	}
	return at + int64(d)
}

// clockReading is one instant on both clocks. The wall reading has the wall clock's steps
// back added to it, so that stamps from before and after a step can be compared.
type clockReading struct{ mono, wall int64 }

// add moves both clocks by d.
func (s clockReading) add(d time.Duration) clockReading {
	return clockReading{instantAfter(s.mono, d), instantAfter(s.wall, d)}
}

// offset grows when the wall clock steps forward or the machine was suspended. It
// shrinks by less than a jump.
func (s clockReading) offset() int64 { return s.wall - s.mono }

// stepBack is a step back of the wall clock that was noticed.
type stepBack struct {
	from, to int64 // monotonic instants between which it happened
	offset   int64 // at its end
	by       int64
}

// now reads both clocks and notices a step back of the wall clock. The caller holds
// w.mu, so no other reading is newer than this one and makes it look like a step back.
func (w *Watchdog) now() clockReading {
	t := time.Now()
	s := clockReading{int64(t.Sub(w.base)), w.wall(t) + w.back}
	if by := w.offset - s.offset(); by >= jump {
		w.back += by
		s.wall += by
		const kept = 8 // more than happen during one command
		w.steps = append(w.steps[max(0, len(w.steps)-kept+1):], stepBack{w.lastReading, s.mono, w.offset, by})
	}
	w.lastReading = s.mono
	return s
}

// at turns a past instant into a stamp. It leaves out the steps back that came later.
// The caller holds w.mu.
func (w *Watchdog) at(t time.Time) clockReading {
	w.now()
	s := clockReading{int64(t.Sub(w.base)), w.wall(t) + w.back}
	for _, step := range slices.Backward(w.steps) {
		if s.mono < step.from || s.mono < step.to && s.offset()-step.offset >= jump {
			s.wall -= step.by
		}
	}
	return s
}

// wallClock returns t without its monotonic reading.
func wallClock(t time.Time) int64 { return t.Round(0).UnixNano() }

// firstDelay returns how long after its grant a lease is first due. Half the interval is spread, so
// that leases taken together are not asked for together.
func firstDelay(every time.Duration) time.Duration {
	return every - rand.N(every/2+1)
}

// delay returns how long after one renewal the next is due. It is never more than the interval, and
// a little less at random. After an outage everything is asked for at once. The random part keeps
// it
// from staying in step for ever.
func delay(every time.Duration) time.Duration {
	return every - rand.N(every/coalesce+1)
}

// retryInterval returns the time that decides when to repeat: the interval, or what is left of
// trust if that is less. It is no less than an eighth of the interval, so that an outage does not
// end in a storm of renewals.
func retryInterval(every, left time.Duration) time.Duration {
	return max(min(every, left), every/8)
}

// backoff returns how long after no answer the lease is due again: from a sixteenth of the
// interval, doubling to half of it, a second at most.
func backoff(every time.Duration, tries int) time.Duration {
	most := min(every/2, time.Second)
	d := max(min(every/16<<min(tries, 3), most), time.Millisecond)
	return d - rand.N(d/2+1)
}
