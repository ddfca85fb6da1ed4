package reentrant

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/construct"
	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/internal/settings"
)

// manager is what the mutexes of one client share: for each name in use, the waiters of this
// client. Users have it inside their redlatch.Client.
type manager struct {
	session  *session.Session
	registry *mutex.Registry

	idleSubscribers atomic.Int64 // so many subscribers receive releases of any lock, and do not want it

	mu sync.Mutex // guards the users of all local queues, LockState.Local, and lingerUntil
}

func init() {
	construct.Reentrant = func(r *mutex.Registry) construct.Mutexes { return newManager(r) }
}

// Mutex implements construct.Mutexes.
func (f *manager) Mutex(name string, st *settings.Lock) any { return f.mutex(name, st) }

// newManager makes the manager of one client. The client has one registry for all its mutexes.
func newManager(b *mutex.Registry) *manager {
	return &manager{session: b.Session, registry: b}
}

// acquireRef returns the local queue of a name and counts the caller as a user. The caller must be a user
// of the lock state until it has called releaseRef.
func (f *manager) acquireRef(s *mutex.LockState) *localQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, _ := s.Local.(*localQueue)
	if l == nil {
		l = &localQueue{LockState: s}
		s.Local = l
	}
	l.refs++
	return l
}

// releaseRef ends the use that acquireRef began. The last user ends the subscription, so that
// nothing is kept for names that are not in use.
func (f *manager) releaseRef(l *localQueue) {
	f.mu.Lock()
	l.refs--
	last := l.refs == 0
	if last {
		l.LockState.Local = nil
	}
	f.mu.Unlock()
	if last && l.contention != nil && l.sub != nil {
		l.sub.Close()
	}
}

// noteRelease notes that a lock was freed, and how many subscribers received the message.
func (f *manager) noteRelease(name, channel string, receivers int64, roundTrip time.Duration) {
	own := f.session.Hub.IsSubscribed(channel)
	if own && receivers > 0 {
		receivers--
	}
	h := subscriberCount{own: own, counted: max(receivers, 0), mayBeMore: f.session.Cluster() || receivers < 0, idle: f.idleSubscribers.Load()}
	state := f.registry.AcquireRef(name) // not that of the acquisition: an Unlock that is called again may come long after it
	defer f.registry.ReleaseRef(name, state)
	l := f.acquireRef(state)
	defer f.releaseRef(l)
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
func (f *manager) linger(name string, l *localQueue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	isKept := !l.lingerUntil.IsZero()
	l.lingerUntil = time.Now().Add(longestYield)
	if isKept {
		return
	}
	l.refs++
	f.registry.AcquireRef(name)
	var timer *time.Timer
	timer = time.AfterFunc(longestYield, func() {
		if left := f.lingerLeft(l); left > 0 {
			timer.Reset(left)
			return
		}
		f.releaseRef(l)
		f.registry.ReleaseRef(name, l.LockState)
	})
}

// lingerLeft returns how long the state is still to be kept. If the time is over, it ends the
// keeping.
func (f *manager) lingerLeft(l *localQueue) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := time.Until(l.lingerUntil)
	if left <= 0 {
		l.lingerUntil = time.Time{}
	}
	return left
}
