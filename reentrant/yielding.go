package reentrant

import "time"

// yielding decides how long a client that has released a lock waits before it
// asks for it again, so that a waiter of another client can take it. Without a
// yield the releasing client would nearly always win: the other one has to hear
// of the release first.
//
// A yield costs time, so it is made only where it is likely to help:
//
//   - Another client had the lock since the last release. The client then yields
//     at each release: half as long as before when that helped, twice as long when
//     it did not, and no more after two yields in vain.
//   - More subscribers hear the release than before. A new one may be a waiter. The
//     client tries eight yields, each twice as long as the one before it. If all of them
//     are in vain, the next new subscribers get no more than probes, until another client
//     is seen with the lock: a monitor that reconnects again and again is always new.
//   - Somebody may hear the release, and nothing more is known: a monitor that
//     subscribes to every channel, or any node of a cluster. The client probes: a
//     short yield from time to time, and a long one, for waiters far away, more
//     rarely. Probes take less than three parts in a hundred of the time.
//
// It has no clock of its own, and is guarded by local.mu.
type yielding struct {
	until  time.Time     // other clients go first until then
	length time.Duration // of the last yield; 0 when nothing is known
	tries  int           // how many more yields may be in vain
	others bool          // another client had the lock since the last release
	heard  int64         // how many subscribers heard the last release
	series bool          // the tries are for new subscribers
	spent  bool          // such a series was in vain, and no other client was seen since
	probes uint          // how many probes there were
	next   time.Time     // the next probe is not before
}

const (
	shortestYield = time.Millisecond
	longestYield  = 100 * time.Millisecond

	triesAfterOther = 2 // so that a length which was halved too far is mended
	triesForNew     = 8 // from the shortest to the longest

	probePause = 150 // times the shortest yield
)

// hearers is who may have heard a release, the client itself left out.
type hearers struct {
	known int64 // subscribers that Redis counted
	more  bool  // there may be others: a node of a cluster counts its own subscribers only
	usual int64 // so many hear the releases of any lock, and do not come
}

// released is called at each release, which took roundTrip. It reports whether the
// subscribers that heard it are taken for idle ones: they do not come.
func (y *yielding) released(now time.Time, h hearers, roundTrip time.Duration) (idle bool) {
	// A waiter needs a message and a command, each about as long as our own command.
	least := min(max(2*roundTrip, shortestYield), longestYield/8)
	inVain, more := !y.until.IsZero(), h.known > max(y.heard, h.usual)
	switch {
	case y.others:
		y.length, y.tries, y.series, y.spent = y.length/2, triesAfterOther, false, false
	case more && !y.series && !y.spent:
		if y.tries == 0 {
			y.length = 0
		}
		y.tries, y.series = triesForNew, true
	case inVain:
		y.length *= 2
	}
	y.others, y.heard, y.until = false, h.known, time.Time{}
	switch {
	case h.known <= 0 && !h.more:
		return false // nobody is there to take it
	case y.tries > 0:
		y.tries--
		y.spent = y.series && y.tries == 0
		y.series = y.series && !y.spent
		y.length = min(max(y.length, least), longestYield)
	case now.Before(y.next):
		return true
	default:
		y.next = now.Add(probePause * least)
		y.length = y.probe(least)
		idle = true
	}
	y.until = now.Add(y.length)
	return idle
}

// probe is how long the next probe is: each fourth is four times as long as the
// three before it, each fourth of those again, and each fourth of those is the
// longest yield. On average it is nearly four times the shortest.
func (y *yielding) probe(least time.Duration) time.Duration {
	y.probes++
	switch {
	case y.probes%64 == 0:
		return longestYield
	case y.probes%16 == 0:
		return min(16*least, longestYield)
	case y.probes%4 == 0:
		return 4 * least
	}
	return least
}
