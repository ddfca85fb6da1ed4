package mutex

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
)

// Book is the registry of a client. It has the lock state of each name in use, for all kinds of
// mutex together. So a chain that has the lock through one kind re-enters through the other.
type Book struct {
	Session *session.Session

	mu      sync.Mutex
	records map[string]*Record
}

// NewBook makes the registry of one client.
func NewBook(s *session.Session) *Book {
	return &Book{Session: s, records: make(map[string]*Record)}
}

// Enter returns the lock state of a name, and counts the caller as a user of it.
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

// Leave ends the use that Enter began. A name without users takes no memory.
func (b *Book) Leave(name string, r *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.refs--
	if r.refs == 0 {
		delete(b.records, name)
	}
}

// Len returns the number of names in use.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records)
}

// Held returns all acquisitions of the client.
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

// Record is the lock state of one name.
type Record struct {
	refs int // users, guarded by Book.mu

	mu      sync.Mutex
	held    []*acquisition.Acquisition // with open holds: one, and lost ones that nobody asked about
	waiting map[*owner.Owner][]*watcher
	fault   error     // why the last attempt failed; nil if it did not
	faultAt time.Time // when fault was set
}

// watcher is a Lock call that waits, while another call of its own chain may get the lock. That is
// possible only in a chain with one owner (owner.New).
type watcher struct {
	owner *owner.Owner
	got   chan struct{} // capacity 1
	at    int           // index in Record.waiting of its owner
}

// HeldBy returns the acquisition of o, or of an owner above o on its path, or nil if none of them
// has the lock. Of two acquisitions it returns the nearer one. An outer one that is being released
// may still be here while an inner one has the lock already.
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

// Holder returns an acquisition of this client that has the lock, or nil. It returns none that is
// being released, because anybody may have the lock by now.
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

// Watch notifies got when the chain gets the lock by another call. A waiter must then re-enter,
// because it would otherwise wait for itself. The caller must check HeldBy after Watch, and again
// after each notice. stop ends the notices.
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

// Granted adds a fresh grant, and notifies watchers of its owner.
func (r *Record) Granted(a *acquisition.Acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = nil
	r.held = append(r.held, a)
	for _, w := range r.waiting[a.Owner] { // the owner of a whole chain has no owners below it
		select {
		case w.got <- struct{}{}:
		default:
		}
	}
}

// Ended removes an acquisition.
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

// SetFault sets why the last attempt failed, or nil if it did not.
func (r *Record) SetFault(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.faultAt = err, time.Now()
}

// Fault returns why Redis could not be asked lately. It is nil if Redis could be asked, or if
// nobody has asked. A caller that cannot reach Redis retries every few seconds. So an older fault
// belongs to a caller that has left.
func (r *Record) Fault() error {
	const lately = 10 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.faultAt) > lately {
		return nil
	}
	return r.fault
}
