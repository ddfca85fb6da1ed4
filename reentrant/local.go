package reentrant

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/wake"
)

// local is what one client knows of one lock while it has to do with it.
//
// The goroutines of a client queue here, in order, for the turn: the right to
// ask Redis for the lock and, with it, the lock. Only one of them talks to
// Redis, however many wait, and Unlock hands the lock to the next by one
// command. (Lock cohorting: Dice, Marathe, Shavit, 2012.)
type local struct {
	*mutex.Record

	refs int // users, guarded by Family.mu

	mu     sync.Mutex
	taken  bool               // somebody has the turn
	queue  []*waiter          // for the turn, in order of arrival
	streak int                // grants in a row since the lock last came from Redis
	aside  time.Time          // until when others are let go first
	polite time.Duration      // how long they were let go first the last time
	others bool               // somebody else had the lock since then
	sub    *wake.Subscription // nil until somebody was refused
}

// waiter is a Lock that waits for the turn.
type waiter struct {
	want  *want
	given chan given // capacity 1
	left  bool       // it gave up; guarded by local.mu
}

// given is what a waiter gets: the lock, or the turn to ask for it.
type given struct {
	hold *acquisition.Hold
	turn bool
}

// join takes the turn if it is free, and else queues. A chain that got the lock
// since it looked is sent back to look again: nil and false.
func (l *local) join(w *want) (wait *waiter, turn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.HeldBy(w.Owner) != nil:
		return nil, false
	case !l.taken:
		l.taken = true
		return nil, true
	}
	wait = &waiter{want: w, given: make(chan given, 1)}
	l.queue = append(l.queue, wait)
	return wait, false
}

// tryJoin takes the turn if it is free.
func (l *local) tryJoin() (turn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn = !l.taken
	l.taken = true
	return turn
}

// next takes the first waiter out of the queue, nil if there is none.
func (l *local) next() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextLocked()
}

func (l *local) nextLocked() *waiter {
	for len(l.queue) > 0 {
		w := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if !w.left {
			return w
		}
	}
	return nil
}

// deliver gives w what it waits for. It reports false if w gave up meanwhile.
func (l *local) deliver(w *waiter, g given) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.left {
		return false
	}
	w.given <- g
	return true
}

// withdraw takes a waiter out of the queue. It reports false when it is not there:
// somebody is about to give it something.
func (l *local) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.queue {
		if other == w {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return true
		}
	}
	return false
}

// leave is a waiter giving up. What it was given in the meantime is returned,
// for the caller to pass on.
func (l *local) leave(w *waiter) (given, bool) {
	l.withdraw(w)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.left = true
	select {
	case g := <-w.given:
		return g, true
	default:
		return given{}, false
	}
}

// passTurn gives the turn to the next waiter, who then asks Redis, or frees it.
func (l *local) passTurn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streak = 0
	if w := l.nextLocked(); w != nil {
		w.given <- given{turn: true}
		return
	}
	l.taken = false
}

// granted notes a fresh grant.
func (l *local) granted(a *acquisition.Acquisition) {
	l.mu.Lock()
	l.streak++
	l.mu.Unlock()
	l.Granted(a)
}

// mayTransfer reports whether the lock may go to another waiter of this client
// once more before others get a chance.
func (l *local) mayTransfer(turns int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streak < turns
}

// stepAside makes the next one with the turn wait before it asks, so that waiters
// elsewhere, who are only just told, are not always too late. They need a message
// and a command, each about as long as our own command took; but they may be
// farther away. So the wait doubles as long as nobody else gets the lock, and
// halves again when somebody has.
func (l *local) stepAside(roundTrip time.Duration) time.Duration {
	const least, most = time.Millisecond, 100 * time.Millisecond
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others {
		l.polite /= 2
	} else {
		l.polite *= 2
	}
	l.others = false
	l.polite = min(max(l.polite, 2*roundTrip, least), most)
	l.aside = time.Now().Add(l.polite)
	return l.polite
}

// sawOther notes that somebody of another client has the lock.
func (l *local) sawOther() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = true
}

// asideFor is how long to step aside from now on.
func (l *local) asideFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aside.IsZero() {
		return 0
	}
	return time.Until(l.aside)
}

// subscription subscribes to the lock's wakes, once for all users.
func (l *local) subscription(hub *wake.Hub, channel string) *wake.Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		l.sub = hub.Subscribe(channel)
	}
	return l.sub
}
