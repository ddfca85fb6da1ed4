package redistest

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// shared is the one server of this test process, for tests that need only names of their own. It
// lives from its first use to the end of Main.
var shared struct {
	once    sync.Once
	server  *Server
	err     error
	hasMain atomic.Bool // Main will end it
}

// Shared returns the server that all tests of this process share. Use names from Name. Do not
// flush, configure or stop it.
func Shared(t testing.TB) *Server {
	t.Helper()
	if !shared.hasMain.Load() {
		t.Fatal("redistest.Shared needs func TestMain(m *testing.M) { redistest.Main(m) }, which ends the server")
	}
	b := findBinary(t) // outside the once, so that each test is skipped by itself
	shared.once.Do(func() { shared.server, shared.err = startShared(b) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func startShared(b binary) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-*")
	if err != nil {
		return nil, err
	}
	s := &Server{binary: b, dir: dir}
	if err := s.startOnFreePort(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func endShared() {
	if s := shared.server; s != nil {
		s.end()
		_ = os.RemoveAll(s.dir)
	}
}
