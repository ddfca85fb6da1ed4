package mutex

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
)

// Book has a record of each lock that a client has to do with: one for each name,
// for all kinds of mutex, so that a chain which has the lock by one of them
// re-enters by the other.
type Book struct {
	Session *session.Session

	mu      sync.Mutex
	records map[string]*Record
}

// NewBook makes the book of one client.
func NewBook(s *session.Session) *Book {
	return &Book{Session: s, records: make(map[string]*Record)}
}

// Enter returns the record of a name and counts the caller as a user.
func (b *Book) Enter(name string) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[name]
	if r == nil {
		r = &Record{}
		b.records[name] = r
	}
	r.refs++
	return r
}

// Leave ends the use that Enter began, so that nothing is kept for names that are
// not in use.
func (b *Book) Leave(name string, r *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.refs--
	if r.refs == 0 {
		delete(b.records, name)
	}
}

// Len is the number of names in use.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// Held is all that is held.
func (b *Book) Held() []*acquisition.Acquisition {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*acquisition.Acquisition
	for _, r := range b.records {
		r.mu.Lock()
		all = append(all, r.held...)
		r.mu.Unlock()
	}
	return all
}

// Record is what a client knows of one lock.
type Record struct {
	refs int // users, guarded by Book.mu

	mu      sync.Mutex
	held    []*acquisition.Acquisition // with open holds: one, and lost ones that nobody asked about yet
	waiting map[*owner.Owner][]*watcher
	fault   error     // why Redis could not be asked at last; nil when it could
	faultAt time.Time // when that was noted
}

// watcher is a Lock that waits while its own chain may get the lock otherwise. That is
// so only for a chain that is one owner (owner.New).
type watcher struct {
	owner *owner.Owner
	got   chan struct{} // capacity 1
	at    int           // in Record.waiting of its owner
}

// HeldBy returns the acquisition of o or of an owner above it on its path, nil if none of
// them has the lock. Of two it returns the nearer one: an outer one that is being
// released may still be here while an inner one has the lock already.
func (r *Record) HeldBy(o *owner.Owner) *acquisition.Acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var nearest *acquisition.Acquisition
	for _, a := range r.held {
		if o.Has(a.Owner) && (nearest == nil || a.Owner.Has(nearest.Owner)) {
			nearest = a
		}
	}
	return nearest
}

// Holder returns an acquisition of this client that has the lock, nil if none. One
// that is being released may have lost the lock to anybody by now.
func (r *Record) Holder() *acquisition.Acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.held {
		if a.IsLive() {
			return a
		}
	}
	return nil
}

// Watch tells when the chain gets the lock by another call: who waits re-enters
// then, and would else wait for itself. It is for those who look at HeldBy after
// it, and again when told. stop ends it.
func (r *Record) Watch(o *owner.Owner) (got <-chan struct{}, stop func()) {
	w := &watcher{owner: o, got: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[*owner.Owner][]*watcher)
	}
	w.at = len(r.waiting[o])
	r.waiting[o] = append(r.waiting[o], w)
	return w.got, func() { r.unwatch(w) }
}

func (r *Record) unwatch(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waiting[w.owner]
	last := len(all) - 1
	if last == 0 {
		delete(r.waiting, w.owner)
		return
	}
	all[w.at] = all[last]
	all[w.at].at = w.at
	all[last] = nil
	r.waiting[w.owner] = all[:last]
}

// Granted notes a fresh grant.
func (r *Record) Granted(a *acquisition.Acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = nil
	r.held = append(r.held, a)
	for _, w := range r.waiting[a.Owner] { // an owner of a whole chain has none below it
		select {
		case w.got <- struct{}{}:
		default:
		}
	}
}

// Ended forgets an acquisition.
func (r *Record) Ended(a *acquisition.Acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.held {
		if other == a {
			r.held = append(r.held[:i], r.held[i+1:]...)
			return
		}
	}
}

// SetFault notes why Redis could not be asked, or by nil that it could.
func (r *Record) SetFault(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.faultAt = err, time.Now()
}

// Fault is why Redis could not be asked lately; nil when it could, or nobody has asked.
// A caller that cannot reach it tries every few seconds, so an older fault is of one that left.
func (r *Record) Fault() error {
	const lately = 10 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.faultAt) > lately {
		return nil
	}
	return r.fault
}
