package semaphore

import (
	"sync"

	"github.com/redlatch/redlatch/lua"
)

// stamp is the time in Redis at which a resize began. All its commands have the same stamp, so a
// late one undoes no later resize. But a command that Redis found void has changed nothing, and its
// reply has the server's clock. So the stamp is read from the clock anew if every command so far
// was void. Otherwise the first resize of a new client would have a stamp that is older than all
// others.
type stamp struct {
	manager *manager
	name    string
	after   lua.Time // the stamp is later

	mu    sync.Mutex // attempts may overlap
	time  lua.Time
	valid int // commands that have this stamp, and were not found void
}

// forCommand returns the stamp of the next command.
func (s *stamp) forCommand() lua.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.valid == 0 {
		s.time = s.manager.nextStamp(s.name, s.after)
	}
	s.valid++
	return s.time
}

// wasVoid records that Redis found a command void.
func (s *stamp) wasVoid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.valid--
}
