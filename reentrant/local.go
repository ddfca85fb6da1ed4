package reentrant

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/wake"
)

// local is what one client knows of one lock while it has to do with it.
//
// The goroutines of a client queue here, in order, for the turn: the right to
// ask Redis for the lock and, with it, the lock. Only one of them talks to
// Redis, however many wait, and Unlock hands the lock to the next by one
// command. (Lock cohorting: Dice, Marathe, Shavit, 2012.)
type local struct {
	refs int // users, guarded by Family.mu

	mu     sync.Mutex
	taken  bool                       // somebody has the turn
	queue  []*waiter                  // for the turn, in order of arrival
	streak int                        // grants in a row since the lock last came from Redis
	aside  time.Time                  // until when others are let go first
	polite time.Duration              // how long they were let go first the last time
	others bool                       // somebody else had the lock since then
	held   []*acquisition.Acquisition // with open holds: one, and lost ones that nobody asked about yet
	sub    *wake.Subscription         // nil until somebody was refused
	asker  *want                      // who has the turn and waits for Redis
	look   chan struct{}              // tells it that its own chain has got the lock
	fault  error                      // why Redis could not be asked lately; nil when it could
}

// waiter is a Lock that waits for the turn.
type waiter struct {
	want  *want
	given chan given // capacity 1
	left  bool       // it gave up; guarded by local.mu
}

// given is what a waiter gets: the lock, the turn to ask for it, or neither,
// when its own chain has the lock now and it should re-enter.
type given struct {
	hold *acquisition.Hold
	turn bool
}

// heldBy returns the acquisition that the chain has, nil if it has none.
func (l *local) heldBy(o *owner.Owner) *acquisition.Acquisition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldByLocked(o)
}

func (l *local) heldByLocked(o *owner.Owner) *acquisition.Acquisition {
	for _, a := range l.held {
		if a.Owner == o {
			return a
		}
	}
	return nil
}

// holder returns an acquisition of this client that has the lock, nil if none.
func (l *local) holder() *acquisition.Acquisition {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.held {
		if !a.IsLost() {
			return a
		}
	}
	return nil
}

// join takes the turn if it is free, and else queues. A chain that got the lock
// since it looked is sent back to look again: nil and false.
func (l *local) join(w *want) (wait *waiter, turn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.heldByLocked(w.owner) != nil:
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

// leave is a waiter giving up. What it was given in the meantime is returned,
// for the caller to pass on.
func (l *local) leave(w *waiter) (given, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.left = true
	for i, other := range l.queue {
		if other == w {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			break
		}
	}
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

// granted notes a fresh grant, and sends waiters of the same chain back: they
// re-enter now, and would else wait for themselves.
func (l *local) granted(a *acquisition.Acquisition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streak++
	l.fault = nil
	l.held = append(l.held, a)
	if l.asker != nil && l.asker.owner == a.Owner {
		select {
		case l.look <- struct{}{}:
		default:
		}
	}
	kept := l.queue[:0]
	for _, w := range l.queue {
		if w.want.owner == a.Owner {
			w.given <- given{}
		} else {
			kept = append(kept, w)
		}
	}
	l.queue = kept
}

// asking notes who waits for Redis. A TryLock of the same chain may get the lock
// meanwhile; the channel tells of that.
func (l *local) asking(w *want) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look == nil {
		l.look = make(chan struct{}, 1)
	}
	l.asker = w
	return l.look
}

// asked ends what asking began.
func (l *local) asked(w *want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asker == w {
		l.asker = nil
	}
}

// ended forgets an acquisition.
func (l *local) ended(a *acquisition.Acquisition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.held {
		if other == a {
			l.held = append(l.held[:i], l.held[i+1:]...)
			return
		}
	}
}

// mayTransfer reports whether the lock may go to another waiter of this client
// once more before others get a chance.
func (l *local) mayTransfer(turns int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streak < turns
}

func (l *local) setFault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

func (l *local) lastFault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
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
