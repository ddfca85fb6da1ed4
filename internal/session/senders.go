package session

import (
	"sync"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/internal/sender"
)

// senders has a sender for each master of a cluster. Commands to one master go together. So they share a
// connection and wait for no answer of another master.
type senders struct {
	one    *sender.Sender // for all commands, or for those whose master is not known
	config sender.Config  // of each master's sender

	mu       sync.Mutex
	byMaster map[string]*sender.Sender
}

// of returns the sender of a master.
func (s *senders) of(master string) *sender.Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.byMaster[master]
	if to == nil {
		to = sender.New(s.config)
		if s.byMaster == nil {
			s.byMaster = make(map[string]*sender.Sender)
		}
		s.byMaster[master] = to
	}
	return to
}

// close ends the workers that wait for commands. It does not block; see sender.Sender.Close. A sender that
// a command after it makes ends its workers by itself when they had no command for a while.
func (s *senders) close() {
	s.one.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, to := range s.byMaster {
		to.Close()
	}
}

// senderFor returns the sender for a command to the keys of a name.
func (s *Session) senderFor(name string) *sender.Sender {
	if s.ClusterPipeline == nil {
		return s.senders.one
	}
	s.topology.keepFresh()
	master := s.topology.nodes.of(key.Slot(name))
	if master == "" {
		return s.senders.one
	}
	return s.senders.of(master)
}
