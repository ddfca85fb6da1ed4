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

	mu sync.Mutex // guards LockState.Local and lingerUntil
}

func init() {
	construct.Reentrant = func(r *mutex.Registry) construct.Mutexes { return newManager(r) }
}

// Mutex implements construct.Mutexes.
func (m *manager) Mutex(name string, st *settings.Lock) any { return m.newMutex(name, st) }

// newManager makes the manager of one client. The client has one registry for all its mutexes.
func newManager(b *mutex.Registry) *manager {
	return &manager{session: b.Session, registry: b}
}

// localQueueOf returns the local queue of a name, whose lock state the caller uses.
func (m *manager) localQueueOf(s *mutex.LockState) *localQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, _ := s.Local.(*localQueue)
	if l == nil {
		l = &localQueue{LockState: s}
		s.Local = l
	}
	return l
}

// noteRelease notes that a lock was freed, and how many subscribers received the message.
func (m *manager) noteRelease(name, channel string, receivers int64, roundTrip time.Duration) {
	own := m.session.Hub.IsSubscribed(channel)
	if own && receivers > 0 {
		receivers--
	}
	h := subscriberCount{own: own, counted: max(receivers, 0), mayBeMore: m.session.Cluster() || receivers < 0, idle: m.idleSubscribers.Load()}
	state := m.registry.AcquireRef(name) // not that of the acquisition: an Unlock that is called again may come long after it
	defer m.registry.ReleaseRef(name, state)
	l := m.localQueueOf(state)
	idle, tried := l.noteRelease(h, roundTrip)
	if idle || h.counted < h.idle {
		m.idleSubscribers.Store(h.counted)
	}
	if h.counted > 0 || h.mayBeMore || tried { // a subscriber that has gone may come again
		m.linger(name, l)
	}
}

// linger keeps what is known of a name for as long as the longest yield, even if nobody of this
// client wants the lock now.
func (m *manager) linger(name string, l *localQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isKept := !l.lingerUntil.IsZero()
	l.lingerUntil = time.Now().Add(longestYield)
	if isKept {
		return
	}
	m.registry.AcquireRef(name)
	var timer *time.Timer
	timer = time.AfterFunc(longestYield, func() {
		if left := m.lingerLeft(l); left > 0 {
			timer.Reset(left)
			return
		}
		m.registry.ReleaseRef(name, l.LockState)
	})
}

// lingerLeft returns how long the state is still to be kept. If the time is over, it ends the
// keeping.
func (m *manager) lingerLeft(l *localQueue) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := time.Until(l.lingerUntil)
	if left <= 0 {
		l.lingerUntil = time.Time{}
	}
	return left
}
