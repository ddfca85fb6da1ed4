package reentrant

import "time"

// yieldPolicy decides how long a client that has released a lock waits before it asks for it again,
// so that a waiter of another client can get it. Without a yield the releasing client would nearly
// always win, because the other one must first receive the message of the release.
//
// A yield costs time, so the client yields only where that is likely to help:
//
//   - Another client had the lock since the last release. The client then yields at each release:
//     half as long as before if that helped, twice as long if it did not. After two yields in vain
//     it stops.
//   - More subscribers receive the release than before. A new one may be a waiter. The client tries
//     eight yields, each twice as long as the one before it. If all of them are in vain, the next
//     new subscribers get no more than probes, until another client is seen with the lock: a
//     monitor that reconnects again and again is always new.
//   - Somebody may receive the release, and nothing more is known: a monitor that subscribes to
//     every channel, or any node of a cluster. The client probes: a short yield from time to time,
//     and a long one, for waiters far away, more rarely. Probes take less than three parts in a
//     hundred of the time.
//
// It has no clock of its own, and is guarded by localQueue.mu.
type yieldPolicy struct {
	until       time.Time     // other clients go first until then
	length      time.Duration // of the last yield; 0 if nothing is known
	tries       int           // how many more yields may be in vain
	otherHeld   bool          // another client had the lock since the last release
	subscribers int64         // how many subscribers received the last release
	trying      bool          // the tries are for new subscribers
	exhausted   bool          // such a series was in vain, and no other client was seen since
	probes      uint          // how many probes there were
	nextProbe   time.Time     // the next probe is not before
}

const (
	shortestYield = time.Millisecond
	longestYield  = 100 * time.Millisecond

	triesAfterOther = 2 // so that a length which was halved too far is mended
	triesForNew     = 8 // from the shortest to the longest

	probePause = 150 // times the shortest yield
)

// subscriberCount is who may have received a release, without the client itself.
type subscriberCount struct {
	counted   int64 // subscribers that Redis counted
	mayBeMore bool  // there may be others: a node of a cluster counts its own subscribers only
	idle      int64 // so many receive the releases of any lock, and do not want it
}

// noteRelease is called at each release, which took roundTrip. It reports whether the subscribers
// that received it count as idle, which means that they do not want the lock.
func (y *yieldPolicy) noteRelease(now time.Time, h subscriberCount, roundTrip time.Duration) (idle bool) {
	// A waiter needs a message and a command, each about as long as our own command.
	least := min(max(2*roundTrip, shortestYield), longestYield/8)
	inVain, more := !y.until.IsZero(), h.counted > max(y.subscribers, h.idle)
	switch {
	case y.otherHeld:
		y.length, y.tries, y.trying, y.exhausted = y.length/2, triesAfterOther, false, false
	case more && !y.trying && !y.exhausted:
		if y.tries == 0 {
			y.length = 0
		}
		y.tries, y.trying = triesForNew, true
	case inVain:
		y.length *= 2
	}
	y.otherHeld, y.subscribers, y.until = false, h.counted, time.Time{}
	switch {
	case h.counted <= 0 && !h.mayBeMore:
		return false // nobody is there to get it
	case y.tries > 0:
		y.tries--
		y.exhausted = y.trying && y.tries == 0
		y.trying = y.trying && !y.exhausted
		y.length = min(max(y.length, least), longestYield)
	case now.Before(y.nextProbe):
		return true
	default:
		y.nextProbe = now.Add(probePause * least)
		y.length = y.probe(least)
		idle = true
	}
	y.until = now.Add(y.length)
	return idle
}

// probe returns how long the next probe is. Each fourth is four times as long as the three before
// it. Each fourth of those is four times as long again, and each fourth of those is the longest
// yield. The average is nearly four times the shortest.
func (y *yieldPolicy) probe(least time.Duration) time.Duration {
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
