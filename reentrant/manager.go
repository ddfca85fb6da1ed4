package reentrant

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
)

// Manager is what the mutexes of one client share: for each name in use, the waiters of this
// client. Users have it inside their redlatch.Client.
type Manager struct {
	session  *session.Session
	registry *mutex.Registry

	idleSubscribers atomic.Int64 // so many subscribers receive releases of any lock, and do not want it

	mu     sync.Mutex
	queues map[string]*localQueue
}

// NewManager makes the manager of one client. The client has one registry for all its mutexes.
func NewManager(b *mutex.Registry) *Manager {
	return &Manager{session: b.Session, registry: b, queues: make(map[string]*localQueue)}
}

// acquireRef returns the local state of a name and counts the caller as a user.
func (f *Manager) acquireRef(name string) *localQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.queues[name]
	if l == nil {
		l = &localQueue{LockState: f.registry.AcquireRef(name)}
		f.queues[name] = l
	}
	l.refs++
	return l
}

// releaseRef ends the use that acquireRef began. The last user ends the subscription, so that
// nothing is kept for names that are not in use.
func (f *Manager) releaseRef(name string, l *localQueue) {
	f.mu.Lock()
	l.refs--
	last := l.refs == 0
	if last {
		delete(f.queues, name)
	}
	f.mu.Unlock()
	if !last {
		return
	}
	f.registry.ReleaseRef(name, l.LockState)
	if l.sub != nil {
		l.sub.Close()
	}
}

// noteRelease notes that a lock was freed, and how many subscribers received the message.
func (f *Manager) noteRelease(name, channel string, heard int64, roundTrip time.Duration) {
	if heard > 0 && f.session.Wakes.IsSubscribed(channel) {
		heard--
	}
	h := subscriberCount{counted: max(heard, 0), mayBeMore: f.session.Cluster() || heard < 0, idle: f.idleSubscribers.Load()}
	l := f.acquireRef(name) // not the one of the acquisition: an Unlock that is called again may come long after it
	defer f.releaseRef(name, l)
	idle, tried := l.noteRelease(h, roundTrip)
	if idle || h.counted < h.idle {
		f.idleSubscribers.Store(h.counted)
	}
	if h.counted > 0 || h.mayBeMore || tried { // a subscriber that has gone may come again
		f.linger(name, l)
	}
}

// linger keeps what is known of a name for as long as the longest yield, even if nobody of this
// client wants the lock now.
func (f *Manager) linger(name string, l *localQueue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	isKept := !l.lingerUntil.IsZero()
	l.lingerUntil = time.Now().Add(longestYield)
	if isKept {
		return
	}
	l.refs++
	var timer *time.Timer
	timer = time.AfterFunc(longestYield, func() {
		if left := f.lingerLeft(l); left > 0 {
			timer.Reset(left)
			return
		}
		f.releaseRef(name, l)
	})
}

// lingerLeft returns how long the state is still to be kept. If the time is over, it ends the
// keeping.
func (f *Manager) lingerLeft(l *localQueue) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := time.Until(l.lingerUntil)
	if left <= 0 {
		l.lingerUntil = time.Time{}
	}
	return left
}
