package reentrant

import (
	"container/list"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/wake"
)

// local is what one client knows of one lock while it uses it.
//
// The goroutines of a client queue here, in order, for the turn: the right to ask Redis for the
// lock and, with it, the lock. However many wait, only one of them talks to Redis, and Unlock hands
// the lock to the next with one command. (Lock cohorting: Dice, Marathe, Shavit, 2012.)
type local struct {
	*mutex.LockState

	// Guarded by Family.mu.
	refs int       // users
	kept time.Time // until when the state is kept though nobody may use it; zero if it is not

	mu     sync.Mutex
	taken  bool               // somebody has the turn
	queue  list.List          // of *waiter, for the turn, in order of arrival
	streak int                // grants in a row since the lock last came from Redis
	yield  yielding           // whether other clients go first
	sub    *wake.Subscription // nil until somebody was refused
}

// waiter is a Lock that waits for the turn.
type waiter struct {
	request *request
	given   chan given // capacity 1

	// Guarded by local.mu.
	place *list.Element // in local.queue; nil: not there
	left  bool          // it gave up
}

// given is what a waiter gets: the lock, or the turn to ask for it.
type given struct {
	hold *acquisition.Hold
	turn bool
}

// join takes the turn if it is free, and otherwise queues. If the chain got the lock since it
// looked, join returns nil and false, and the caller looks again.
func (l *local) join(w *request) (wait *waiter, turn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.HeldBy(w.Owner) != nil:
		return nil, false
	case !l.taken:
		l.taken = true
		return nil, true
	}
	wait = &waiter{request: w, given: make(chan given, 1)}
	wait.place = l.queue.PushBack(wait)
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
	first := l.queue.Front()
	if first == nil {
		return nil
	}
	w := first.Value.(*waiter)
	l.withdrawLocked(w)
	return w
}

// deliver gives w what it waits for. It reports false if w has given up meanwhile.
func (l *local) deliver(w *waiter, g given) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.left {
		return false
	}
	w.given <- g
	return true
}

// withdraw takes a waiter out of the queue. It reports false if the waiter is not there, because
// somebody is about to give it something.
func (l *local) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withdrawLocked(w)
}

func (l *local) withdrawLocked(w *waiter) bool {
	if w.place == nil {
		return false
	}
	l.queue.Remove(w.place)
	w.place = nil
	return true
}

// leave is called by a waiter that gives up. It returns what the waiter was given in the meantime,
// for the caller to pass on.
func (l *local) leave(w *waiter) (given, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawLocked(w)
	w.left = true
	select {
	case g := <-w.given:
		return g, true
	default:
		return given{}, false
	}
}

// passTurn gives the turn to the next waiter, who then asks Redis. If nobody waits, it frees the
// turn.
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
	l.AddHeld(a)
}

// mayTransfer reports whether the lock may go to another waiter of this client once more before
// others get a chance.
func (l *local) mayTransfer(turns int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streak < turns
}

// released notes a release, after which other clients may go first. It reports whether its
// subscribers count as idle, and whether new ones have had tries.
func (l *local) released(h hearers, roundTrip time.Duration) (idle, tried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle = l.yield.released(time.Now(), h, roundTrip)
	return idle, l.yield.series || l.yield.spent
}

// sawOther notes that another client has the lock.
func (l *local) sawOther() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yield.others = true
}

// yieldFor returns for how long other clients go first from now on.
func (l *local) yieldFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.yield.until.IsZero() {
		return 0
	}
	return time.Until(l.yield.until)
}

// subscription subscribes to the lock's wake-ups, once for all users.
func (l *local) subscription(hub *wake.Hub, channel string) *wake.Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		l.sub = hub.Subscribe(channel)
	}
	return l.sub
}
