package session

import (
	"sync"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/sender"
)

// server is one server that gets commands: the only one, or one master of a cluster. Commands to
// one master go together. So they share a connection and wait for no answer of another master. Each
// master has a clock of its own, which may differ from those of the others.
type server struct {
	sender *sender.Sender
	clock  serverClock
	link   link
}

func newServer(cfg sender.Config) *server {
	to := &server{sender: sender.New(cfg)}
	to.clock.begin()
	return to
}

// servers has the masters of a cluster.
type servers struct {
	fallback *server       // for all commands, or for those whose master is not known
	config   sender.Config // of each master's sender

	mu       sync.Mutex
	byMaster map[string]*server
	closed   bool
}

// forMaster returns the server with the address of a master.
func (s *servers) forMaster(master string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.byMaster[master]
	if to == nil {
		to = newServer(s.config)
		if s.closed {
			to.sender.Close()
		}
		if s.byMaster == nil {
			s.byMaster = make(map[string]*server)
		}
		s.byMaster[master] = to
	}
	return to
}

// close ends the workers that wait for commands. It does not block; see sender.Sender.Close.
func (s *servers) close() {
	s.fallback.sender.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, to := range s.byMaster {
		to.sender.Close()
	}
}

// serverFor returns the server that has the keys of a name, as far as the client knows.
func (s *Session) serverFor(name string) *server {
	if !s.Cluster() {
		return s.servers.fallback
	}
	s.topology.keepFresh()
	master := s.topology.nodes.of(key.Slot(name))
	if master == "" {
		return s.servers.fallback
	}
	return s.servers.forMaster(master)
}
