package reentrant

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/mutex"
	"github.com/redlatch/redlatch/internal/session"
)

// Family is what the mutexes of one client share: for each name in use, the waiters of this client.
// Users have it inside their redlatch.Client.
type Family struct {
	session  *session.Session
	registry *mutex.Registry

	idle atomic.Int64 // so many subscribers receive releases of any lock, and do not want it

	mu     sync.Mutex
	locals map[string]*local
}

// NewFamily makes the family of one client. The client has one book for all its mutexes.
func NewFamily(b *mutex.Registry) *Family {
	return &Family{session: b.Session, registry: b, locals: make(map[string]*local)}
}

// acquireRef returns the local state of a name and counts the caller as a user.
func (f *Family) acquireRef(name string) *local {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.locals[name]
	if l == nil {
		l = &local{LockState: f.registry.AcquireRef(name)}
		f.locals[name] = l
	}
	l.refs++
	return l
}

// releaseRef ends the use that acquireRef began. The last user ends the subscription, so that nothing is kept
// for names that are not in use.
func (f *Family) releaseRef(name string, l *local) {
	f.mu.Lock()
	l.refs--
	last := l.refs == 0
	if last {
		delete(f.locals, name)
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

// released notes that a lock was freed, and how many subscribers received the message.
func (f *Family) released(name, channel string, heard int64, roundTrip time.Duration) {
	if heard > 0 && f.session.Wakes.Hears(channel) {
		heard--
	}
	h := hearers{known: max(heard, 0), more: f.session.Cluster() || heard < 0, usual: f.idle.Load()}
	l := f.acquireRef(name) // not the one of the acquisition: an Unlock that is called again may come long after it
	defer f.releaseRef(name, l)
	idle, tried := l.released(h, roundTrip)
	if idle || h.known < h.usual {
		f.idle.Store(h.known)
	}
	if h.known > 0 || h.more || tried { // a subscriber that has gone may come again
		f.keep(name, l)
	}
}

// keep keeps what is known of a name for as long as the longest yield, even if nobody of this
// client wants the lock now.
func (f *Family) keep(name string, l *local) {
	f.mu.Lock()
	defer f.mu.Unlock()
	isKept := !l.kept.IsZero()
	l.kept = time.Now().Add(longestYield)
	if isKept {
		return
	}
	l.refs++
	var timer *time.Timer
	timer = time.AfterFunc(longestYield, func() {
		if left := f.keptFor(l); left > 0 {
			timer.Reset(left)
			return
		}
		f.releaseRef(name, l)
	})
}

// keptFor returns how long the state is still to be kept. If the time is over, it ends the keeping.
func (f *Family) keptFor(l *local) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := time.Until(l.kept)
	if left <= 0 {
		l.kept = time.Time{}
	}
	return left
}
