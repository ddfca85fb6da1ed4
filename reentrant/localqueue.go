package reentrant

import (
	"container/list"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// localQueue is what one client knows of one lock while it uses it.
//
// The goroutines of a client queue here, in order, for the local lock: the right to ask Redis for
// the lock and, with it, the lock. However many wait, only one of them talks to Redis, and Unlock
// hands the lock to the next with one command. (Lock cohorting: Dice, Marathe, Shavit, 2012.)
type localQueue struct {
	*mutex.LockState

	localLocked bool // somebody has the local lock; guarded by mu
	*contention      // set under mu; nil until another goroutine or client may want the lock
	mu          sync.Mutex
}

// contention is what one client knows of the others that want a lock.
type contention struct {
	lingerUntil time.Time // until when the state is kept though nobody may use it; zero if it is not; guarded by manager.mu

	// Guarded by localQueue.mu.
	waiters list.List            // of *waiter, for the local lock, in order of arrival
	yield   yieldPolicy          // whether other clients go first
	sub     *pubsub.Subscription // nil until somebody was refused
}

// Close ends the subscription after the last use of the name.
func (l *localQueue) Close() {
	if l.contention != nil && l.sub != nil {
		l.sub.Close()
	}
}

// contended begins to keep what is known of others. The caller holds l.mu.
func (l *localQueue) contended() *contention {
	if l.contention == nil {
		l.contention = new(contention)
	}
	return l.contention
}

// waiter is a Lock that waits for the local lock.
type waiter struct {
	request *request
	handoff chan *acquisition.Hold // capacity 1; gets the lock, or nil for the local lock and the right to ask Redis

	// Guarded by localQueue.mu.
	element  *list.Element // in localQueue.waiters; nil: not there
	canceled bool          // it gave up
}

// lockOrEnqueue takes the local lock if it is free, and otherwise queues. If the chain got the lock
// since it looked, lockOrEnqueue returns nil and false, and the caller looks again.
func (l *localQueue) lockOrEnqueue(w *request) (wait *waiter, localLock bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.HeldBy(w.Owner) != nil:
		return nil, false
	case !l.localLocked:
		l.localLocked = true
		return nil, true
	}
	wait = &waiter{request: w, handoff: make(chan *acquisition.Hold, 1)}
	wait.element = l.contended().waiters.PushBack(wait)
	return wait, false
}

// tryLock takes the local lock if it is free.
func (l *localQueue) tryLock() (localLock bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	localLock = !l.localLocked
	l.localLocked = true
	return localLock
}

// next takes the first waiter out of the queue, nil if there is none.
func (l *localQueue) next() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextLocked()
}

func (l *localQueue) nextLocked() *waiter {
	if l.contention == nil || l.waiters.Len() == 0 {
		return nil
	}
	w := l.waiters.Front().Value.(*waiter)
	l.withdrawLocked(w)
	return w
}

// deliver gives w the lock. It reports false if w has given up meanwhile.
func (l *localQueue) deliver(w *waiter, h *acquisition.Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.canceled {
		return false
	}
	w.handoff <- h
	return true
}

// withdraw takes a waiter out of the queue. It reports false if the waiter is not there, because
// somebody is about to give it something.
func (l *localQueue) withdraw(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withdrawLocked(w)
}

func (l *localQueue) withdrawLocked(w *waiter) bool {
	if w.element == nil {
		return false
	}
	l.waiters.Remove(w.element)
	w.element = nil
	return true
}

// cancelWait is called by a waiter that gives up. It returns what the waiter was given in the
// meantime, for the caller to pass on.
func (l *localQueue) cancelWait(w *waiter) (h *acquisition.Hold, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawLocked(w)
	w.canceled = true
	select {
	case h := <-w.handoff:
		return h, true
	default:
		return nil, false
	}
}

// passLocalLock gives the local lock to the next waiter, who then asks Redis. If nobody waits, it
// frees the local lock.
func (l *localQueue) passLocalLock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.nextLocked(); w != nil {
		w.handoff <- nil
		return
	}
	l.localLocked = false
}

// noteRelease notes a release, after which other clients may go first. It reports whether its
// subscribers count as idle, and whether new ones have had tries.
func (l *localQueue) noteRelease(h subscriberCount, roundTrip time.Duration) (idle, tried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contention == nil && h.counted == 0 && !h.mayBeMore {
		return false, false // nobody else wants the lock
	}
	idle = l.contended().yield.noteRelease(time.Now(), h, roundTrip)
	return idle, l.yield.trying || l.yield.exhausted
}

// noteRefused notes that another client has the lock.
func (l *localQueue) noteRefused(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contended().yield.noteRefused(client)
}

// yieldFor returns for how long other clients go first from now on.
func (l *localQueue) yieldFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contention == nil || l.yield.until.IsZero() {
		return 0
	}
	return time.Until(l.yield.until)
}

// noteWake notes a message that says that the lock is free. It returns how long the client leaves
// the lock to others, and whether the message is that of its own last release.
func (l *localQueue) noteWake() (left time.Duration, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contended().yield.noteWake()
}

// subscription subscribes to the lock's wake-ups, once for all users.
func (l *localQueue) subscription(hub *pubsub.Hub, channel string) *pubsub.Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contended().sub == nil {
		l.sub = hub.Subscribe(channel)
	}
	return l.sub
}

// messages returns the wake-ups of the lock, or nil if nobody has subscribed to them.
func (l *localQueue) messages() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contention == nil || l.sub == nil {
		return nil
	}
	return l.sub.C()
}
