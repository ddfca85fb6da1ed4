package mutex

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/acquisition"
	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// Registry is the registry of a client. It has the lock state of each name in use, for all kinds of
// mutex together. So a chain that has the lock through one kind re-enters through the other.
type Registry struct {
	Session *session.Session

	keys *key.Cache[key.Mutex]

	mu     sync.Mutex
	states map[string]*LockState
}

// NewRegistry makes the registry of one client.
func NewRegistry(s *session.Session) *Registry {
	return &Registry{Session: s, keys: key.NewCache(key.ForMutex), states: make(map[string]*LockState)}
}

// Keys returns the keys of a name that CheckName accepted.
func (r *Registry) Keys(name string) *key.Mutex {
	keys, _ := r.keys.Get(name)
	return keys
}

// AcquireRef returns the lock state of a name, and counts the caller as a user of it.
func (r *Registry) AcquireRef(name string) *LockState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.states[name]
	if state == nil {
		state = &LockState{}
		r.states[name] = state
	}
	state.refs++
	return state
}

// ReleaseRef ends the use that AcquireRef began. A name without users takes no memory, and no
// subscription.
func (r *Registry) ReleaseRef(name string, state *LockState) {
	r.mu.Lock()
	state.refs--
	last := state.refs == 0
	if last {
		delete(r.states, name)
	}
	r.mu.Unlock()
	if last && state.Local != nil {
		state.Local.Close()
	}
}

// Len returns the number of names in use.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.states)
}

// Held returns all acquisitions of the client.
func (r *Registry) Held() []*acquisition.Acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*acquisition.Acquisition
	for _, state := range r.states {
		state.mu.Lock()
		all = append(all, state.held...)
		state.mu.Unlock()
	}
	return all
}

// LockState is the lock state of one name.
type LockState struct {
	refs int // users, guarded by Registry.mu

	Local interface{ Close() } // the local queue of the plain mutex, guarded by the manager of its client, and read without it by the last user; nil until it is used

	mu          sync.Mutex
	held        []*acquisition.Acquisition              // with open holds: one, and lost ones that nobody asked about
	firstHeld   [1]*acquisition.Acquisition             // the memory of held, until there are more
	subscribers map[*owner.Owner]map[chan struct{}]bool // of NotifyOnGrant; only owners of a whole chain (owner.New) have any
	refusal     *lockerr.NotAcquiredError               // what Redis last answered to a waiter of this client; nil if nothing yet
	refusedAt   Instant                                 // when the waiter asked that got refusal
	failure     error                                   // why the last attempt failed; nil if it did not
	failedAt    Instant                                 // when failure was set
	askedAt     Instant                                 // when a request was sent first, since the last answer
	answeredAt  Instant                                 // when Redis last answered a command for this name
}

// HeldBy returns the acquisition of o, or of an owner above o on its path, or nil if none of them
// has the lock. Of two acquisitions it returns the nearer one. An outer one that is being released
// may still be here while an inner one has the lock already.
func (s *LockState) HeldBy(o *owner.Owner) *acquisition.Acquisition {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nearest *acquisition.Acquisition
	for _, a := range s.held {
		if o.Includes(a.Owner) && (nearest == nil || a.Owner.Includes(nearest.Owner)) {
			nearest = a
		}
	}
	return nearest
}

// Holder returns an acquisition of this client that has the lock, or nil. It returns none that is
// being released, because anybody may have the lock by now.
func (s *LockState) Holder() *acquisition.Acquisition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.held {
		if a.IsLive() {
			return a
		}
	}
	return nil
}

// NotifyOnGrant notifies got when the chain gets the lock by another call. A waiter must then
// re-enter, because it would otherwise wait for itself. The caller must check HeldBy after
// NotifyOnGrant, and again after each notice. stop ends the notices. If no other call can get the
// lock for o, got is nil.
func (s *LockState) NotifyOnGrant(o *owner.Owner) (got <-chan struct{}, stop func()) {
	if !o.IsChain() {
		return nil, func() {}
	}
	granted := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = make(map[*owner.Owner]map[chan struct{}]bool)
	}
	if s.subscribers[o] == nil {
		s.subscribers[o] = make(map[chan struct{}]bool)
	}
	s.subscribers[o][granted] = true
	return granted, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers[o], granted)
		if len(s.subscribers[o]) == 0 {
			delete(s.subscribers, o)
		}
	}
}

// AddHeld adds a fresh grant, and notifies the subscribers of its owner.
func (s *LockState) AddHeld(a *acquisition.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
	if s.held == nil {
		s.held = s.firstHeld[:0]
	}
	s.held = append(s.held, a)
	for granted := range s.subscribers[a.Owner] { // the owner of a whole chain has no owners below it
		select {
		case granted <- struct{}{}:
		default:
		}
	}
}

// RemoveHeld removes an acquisition.
func (s *LockState) RemoveHeld(a *acquisition.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.held {
		if other == a {
			s.held = append(s.held[:i], s.held[i+1:]...)
			return
		}
	}
}

// SetLastFailure sets why the last attempt failed, or nil if it did not. A refusal is an answer: it
// says nothing to the waiters behind the command.
func (s *LockState) SetLastFailure(err error) {
	if err != nil && isRefusal(err) {
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.failedAt = err, Now()
	if err == nil {
		s.askedAt, s.answeredAt = 0, s.failedAt
	}
}

func isRefusal(err error) bool {
	class, _ := lua.Classify(err)
	return class == lua.Refused
}

// NoteRefusal notes what Redis answered to a waiter, so that calls that give up before they ask can
// name the holder. sent is when the waiter asked: the lock may have become free while the answer
// was on its way.
func (s *LockState) NoteRefusal(sent Instant, refusal lockerr.NotAcquiredError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.refusedAt = &refusal, sent
}

// RefusalSince returns what Redis last answered to a waiter of this client that asked since that
// time, or nil.
func (s *LockState) RefusalSince(began Instant) *lockerr.NotAcquiredError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal == nil || s.refusedAt < began {
		return nil
	}
	refusal := *s.refusal
	if age := s.refusedAt.Age(); refusal.Remaining > 0 {
		refusal.Remaining = max(refusal.Remaining-age, 1)
	}
	return &refusal
}

// NoteAsk notes that a request for a fresh grant is about to be sent.
func (s *LockState) NoteAsk() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askedAt == 0 {
		s.askedAt = Now()
	}
}

// IsUnanswered reports whether Redis has answered nothing about this name to a wait that began at
// that time, although a request has been in flight for at least half of the wait.
func (s *LockState) IsUnanswered(began Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askedAt != 0 && s.answeredAt < began && 2*s.askedAt.Age() >= began.Age()
}

// LastFailure returns why Redis could not be asked lately. It is nil if Redis could be asked, or if
// nobody has asked. A caller that cannot reach Redis retries every few seconds. So an older fault
// belongs to a caller that has left.
func (s *LockState) LastFailure() error {
	const lately = 10 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failedAt.Age() > lately {
		return nil
	}
	return s.failure
}
