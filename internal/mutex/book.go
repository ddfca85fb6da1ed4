package mutex

import (
	"context"
	"sync"

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

// Close gives back all that is held. The session must have begun to close, so
// that nothing new comes.
func (b *Book) Close(ctx context.Context) error {
	return acquisition.CloseAll(ctx, b.held())
}

func (b *Book) held() []*acquisition.Acquisition {
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
	waiting []*watcher
	fault   error // why Redis could not be asked lately; nil when it could
}

// watcher is a Lock that waits while its own chain may get the lock otherwise.
type watcher struct {
	owner *owner.Owner
	got   chan struct{} // capacity 1
}

// HeldBy returns the acquisition that the chain has, nil if it has none.
func (r *Record) HeldBy(o *owner.Owner) *acquisition.Acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.held {
		if a.Owner == o {
			return a
		}
	}
	return nil
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
	r.waiting = append(r.waiting, w)
	return w.got, func() { r.unwatch(w) }
}

func (r *Record) unwatch(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.waiting {
		if other == w {
			last := len(r.waiting) - 1
			r.waiting[i], r.waiting[last] = r.waiting[last], nil
			r.waiting = r.waiting[:last]
			return
		}
	}
}

// Granted notes a fresh grant.
func (r *Record) Granted(a *acquisition.Acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = nil
	r.held = append(r.held, a)
	for _, w := range r.waiting {
		if w.owner == a.Owner {
			select {
			case w.got <- struct{}{}:
			default:
			}
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
	r.fault = err
}

// Fault is why Redis could not be asked lately; nil when it could.
func (r *Record) Fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}
