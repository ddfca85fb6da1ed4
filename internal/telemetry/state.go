package telemetry

import (
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/event"
)

// state counts what is waited for and held now, as package event says.
type state struct {
	mu      sync.Mutex
	total   [event.Semaphore + 1]counts
	clients map[string]*[event.Semaphore + 1]counts
	holds   map[string]hold // by the id of the acquisition
	// early are ids whose end came before their grant, which is possible if the two happen at
	// nearly the same time. It is a ring, because some of these grants are never notified of.
	early [64]string
	next  int
}

type counts struct{ waiting, held int }

// hold is a grant that has not ended.
type hold struct {
	client    string
	primitive event.Primitive
	label     string // of its name
	since     time.Time
}

// observe counts an event. label is that of the name.
func (s *state) observe(e event.Event, label string) {
	switch e.Kind {
	case event.WaitBegan, event.WaitEnded, event.Released, event.Lost, event.Dropped:
	default:
		return
	}
	if int(e.Primitive) >= len(s.total) {
		return // of a later version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isGrant := e.Kind == event.WaitEnded && e.Result == event.Acquired && e.Source != event.Reentry
	switch {
	case e.Kind == event.WaitBegan:
		s.add(e, 1, 0)
	case isGrant:
		s.add(e, -1, 1)
		s.granted(e, label)
	case e.Kind == event.WaitEnded:
		s.add(e, -1, 0)
	case e.Kind == event.Dropped:
		s.correct(e)
	default:
		s.add(e, 0, -1)
		s.ended(e.ID)
	}
}

func (s *state) add(e event.Event, waiting, held int) {
	of := &s.client(e.Client)[e.Primitive]
	of.waiting, of.held = of.waiting+waiting, of.held+held
	total := &s.total[e.Primitive]
	total.waiting, total.held = total.waiting+waiting, total.held+held
}

// client returns the counts of a client. A client whose counts are all zero may be forgotten: it
// may have been closed.
func (s *state) client(id string) *[event.Semaphore + 1]counts {
	if of, ok := s.clients[id]; ok {
		return of
	}
	const few = 16
	if len(s.clients) >= few {
		for other, of := range s.clients {
			if *of == ([event.Semaphore + 1]counts{}) {
				delete(s.clients, other)
			}
		}
	}
	if s.clients == nil {
		s.clients = map[string]*[event.Semaphore + 1]counts{}
	}
	of := new([event.Semaphore + 1]counts)
	s.clients[id] = of
	return of
}

// correct sets the counts after dropped events. Nobody knows which of the grants have ended, so
// their ages are not known any more.
func (s *state) correct(e event.Event) {
	of := s.client(e.Client)[e.Primitive]
	s.add(e, e.Waiting-of.waiting, e.Held-of.held)
	for id, h := range s.holds {
		if h.client == e.Client && h.primitive == e.Primitive {
			delete(s.holds, id)
		}
	}
}

func (s *state) granted(e event.Event, label string) {
	if i := slices.Index(s.early[:], e.ID); i >= 0 {
		s.early[i] = ""
		return
	}
	if s.holds == nil {
		s.holds = map[string]hold{}
	}
	s.holds[e.ID] = hold{client: e.Client, primitive: e.Primitive, label: label, since: e.Time}
}

func (s *state) ended(id string) {
	if _, ok := s.holds[id]; ok {
		delete(s.holds, id)
		return
	}
	s.early[s.next] = id
	s.next = (s.next + 1) % len(s.early)
}

// age is the age of the oldest grant of a primitive and a label.
type age struct {
	primitive event.Primitive
	label     string
	age       time.Duration
}

// read returns the counts, and the age of the oldest grant of each primitive and label.
func (s *state) read(now time.Time) (total [event.Semaphore + 1]counts, oldest []age) {
	type key struct {
		primitive event.Primitive
		label     string
	}
	since := map[key]time.Time{}
	s.mu.Lock()
	total = s.total
	for _, h := range s.holds {
		k := key{h.primitive, h.label}
		if at, ok := since[k]; !ok || h.since.Before(at) {
			since[k] = h.since
		}
	}
	s.mu.Unlock()
	for k, at := range since {
		oldest = append(oldest, age{k.primitive, k.label, max(now.Sub(at), 0)})
	}
	return total, oldest
}
