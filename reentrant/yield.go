package reentrant

import (
	"slices"
	"time"
)

// yieldPolicy decides how long a client that has released a lock waits before it asks for it again,
// so that a waiter of another client can get it. Without a yield the releasing client would nearly
// always win, because the other one must first receive the message of the release.
//
// A yield costs time, so the client yields only where that is likely to help:
//
//   - Another client had the lock since the last release. The client then yields at each release:
//     half as long as before if that helped, twice as long if it did not. After two yields in vain
//     it only probes.
//   - More subscribers receive the release than before. A new one may be a waiter. The client tries
//     eight yields, each twice as long as the one before it. If all eight are in vain, the client
//     only probes for later new subscribers, until it has seen another client with the lock.
//     Otherwise a monitor that reconnects would start eight yields each time.
//   - Somebody may receive the release, but the client does not know whether they wait, for
//     instance beside a monitor that subscribes to every channel, and in a cluster. The client
//     probes: a short yield from time to time, and a long one, for waiters far away, more rarely.
//     Probes take less than 3 % of the time.
//
// A released lock goes to the client that asks first. Redis sends the message of a release to its
// subscribers always in the same order, so the same clients would win again and again. Therefore a
// client that had the lock delays its attempt after a message. The delay shrinks with each other
// client that has had the lock since then. The client that has waited longest has no delay, so it
// asks first.
//
// The client takes all subscribers for waiters. Some may be monitors, or clients that hang or have
// given up. Then this client waits for turns that nobody takes, and a client that waits less long
// gets the lock twice. The client finds that out when it is refused, and corrects its count.
//
// Callers pass the time to noteRelease. localQueue.mu guards a yieldPolicy.
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
	least       time.Duration // the shortest yield over the link of this client
	awaitsOwn   bool          // the next message is that of the last release of this client

	others    int64    // how many clients waited at the last release
	ahead     int64    // how many of them have not had the lock since; below 0: more had it than waited
	idle      int64    // so many of the subscribers were found not to want the lock
	holders   []string // clients that have had the lock since the last release, as refusals said
	messaged  bool     // a message came since the last refusal
	overtaken bool     // idle was found in this wait
	calm      int      // so many waits ended without that
}

const (
	shortestYield = time.Millisecond
	longestYield  = 100 * time.Millisecond

	triesAfterOther = 2 // so that a length which was halved too far is mended
	triesForNew     = 8 // from the shortest to the longest

	probePause = 150 // times the shortest yield

	mostDoublings = 4 // of the time that is left to clients that have waited longer

	calmWaits = 8 // after which one idle subscriber is taken for a waiter again
)

// subscriberCount is who may have received a release, without the client itself.
type subscriberCount struct {
	counted   int64 // subscribers that Redis counted
	mayBeMore bool  // there may be others: a node of a cluster counts its own subscribers only
	idle      int64 // so many receive the releases of any lock, and do not want it
	own       bool  // this client received the release too
}

// noteRelease is called at each release, which took roundTrip. It reports whether the subscribers
// that received it count as idle, which means that they do not want the lock.
func (y *yieldPolicy) noteRelease(now time.Time, h subscriberCount, roundTrip time.Duration) (idle bool) {
	// A waiter needs a message and a command, each about as long as our own command.
	y.least = min(max(2*roundTrip, shortestYield), longestYield/8)
	y.awaitsOwn = h.own
	y.countWaiters(h)
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
		y.length = min(max(y.length, y.least), longestYield)
	case now.Before(y.nextProbe):
		return true
	default:
		y.nextProbe = now.Add(probePause * y.least)
		y.length = y.probe(y.least)
		idle = true
	}
	y.until = now.Add(y.length)
	return idle
}

// countWaiters begins a wait: all subscribers that are not known to be idle have waited longer than
// this client. If subscribers have gone, the idle ones are taken to have gone first.
func (y *yieldPolicy) countWaiters(h subscriberCount) {
	y.idle = max(y.idle-max(y.subscribers-h.counted, 0), 0)
	switch {
	case y.overtaken || y.idle == 0:
		y.calm = 0
	case y.calm == calmWaits-1:
		y.idle, y.calm = y.idle-1, 0
	default:
		y.calm++
	}
	y.others = max(h.counted-max(h.idle, y.idle), 0)
	y.ahead, y.overtaken, y.messaged = y.others, false, false
	y.holders = y.holders[:0]
}

// noteWake is called after each wake-up, and takes it for the message of a release. It returns how
// long this client leaves the lock to clients that have waited longer: 1, 3, 7 or 15 shortest
// yields for 1, 2, 3, or 4 and more of them, but at most longestYield. The client that has waited
// longest does not wait, or half a shortest yield if there may be a client that has waited longer
// than it knows. It also returns whether the message is that of its own last release.
func (y *yieldPolicy) noteWake() (left time.Duration, own bool) {
	own, y.awaitsOwn = y.awaitsOwn, false
	if !own {
		y.ahead--
		y.otherHeld, y.messaged = true, true
	}
	switch {
	case y.ahead > 0:
		return min((1<<min(y.ahead, mostDoublings)-1)*y.least, longestYield), own
	case y.ahead == 0 && y.others < y.subscribers:
		return y.least / 2, own
	}
	return 0, own
}

// noteRefused notes that another client has the lock. If the client has had the lock before in this
// wait, nobody has taken the turns that this client left to others. So the subscribers that have
// not taken theirs are idle.
func (y *yieldPolicy) noteRefused(client string) {
	y.otherHeld = true
	known := slices.Contains(y.holders, client)
	if known && y.messaged && y.ahead > 0 {
		y.idle = y.subscribers - (y.others - y.ahead)
		y.ahead, y.overtaken = -1, true
	}
	y.messaged = false
	const most = 16 // clients to remember
	if !known && len(y.holders) < most {
		y.holders = append(y.holders, client)
	}
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
