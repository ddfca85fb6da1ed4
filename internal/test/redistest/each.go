package redistest

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Backend is a server, and a protocol to use with it.
type Backend struct {
	addr     string
	real     *Server // nil for the embedded server
	protocol int
}

// Each runs f as a subtest on the shared real server, with RESP2 and RESP3, and on the embedded
// one. These are subtests named real/resp2 and so on. See EmbeddedProtocols for the protocols of
// the embedded server. If there is no real server, its two subtests are skipped, or fail if a
// server is required. If REDLATCH_REAL_ONLY is 1, there is no subtest on the embedded server: make
// test-servers looks for differences between real servers. If f calls t.Parallel, Each returns
// before the subtests have ended.
func Each(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Helper()
	if os.Getenv("REDLATCH_REAL_ONLY") != "1" {
		each(t, "embedded", EmbeddedProtocols(), f, func(t *testing.T) Backend {
			return Backend{addr: Embedded(t).Addr()}
		})
	}
	each(t, "real", []int{2, 3}, f, func(t *testing.T) Backend {
		s := Shared(t)
		return Backend{addr: s.Addr(), real: s}
	})
}

// EmbeddedProtocols are the protocols in which tests speak to the embedded server: RESP3, and in
// make verify RESP2 too. Tests speak both to a real server, and the embedded one is the slowest
// part of many tests. The race detector needs no RESP2 either, because clients decode answers in
// one goroutine.
func EmbeddedProtocols() []int {
	if full() && !RaceDetector {
		return []int{2, 3}
	}
	return []int{3}
}

func each(t *testing.T, kind string, protocols []int, f func(*testing.T, Backend), backend func(*testing.T) Backend) {
	t.Helper()
	for _, protocol := range protocols {
		t.Run(fmt.Sprintf("%s/resp%d", kind, protocol), func(t *testing.T) {
			b := backend(t)
			b.protocol = protocol
			f(t, b)
		})
	}
}

// Addr is the server's host:port.
func (b Backend) Addr() string { return b.addr }

// IsReal reports whether the server is a real one, and not the embedded one.
func (b Backend) IsReal() bool { return b.real != nil }

// Protocol is 2 or 3.
func (b Backend) Protocol() int { return b.protocol }

// Name returns a name that nobody else uses; see the function Name.
func (b Backend) Name(t TB) string { return Name(t) }

// Client returns a client that speaks the protocol of the backend. It has default options
// otherwise, except for the changes of mods. It is closed when the test ends.
func (b Backend) Client(t TB, mods ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, b.addr, append([]func(*redis.Options){b.Speak}, mods...))
}

// Proxy puts a proxy in front of the server. Its clients need the option Speak for the protocol.
func (b Backend) Proxy(t TB) *Proxy {
	t.Helper()
	return NewProxy(t, b.addr)
}

// Speak is the option that makes a client speak the protocol of the backend.
func (b Backend) Speak(o *redis.Options) { o.Protocol = b.protocol }
