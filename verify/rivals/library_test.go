package rivals_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/workload"
)

// library is one of the compared libraries.
type library struct {
	name    string
	module  string
	open    func(t testing.TB, addr string, size scale) client
	key     func(name string) string // of a lock in Redis
	meaning workload.Meaning
	// The features that its documentation describes.
	signal   bool // the library itself notifies the holder of a loss
	window   bool // it says until when a hold may be trusted
	token    bool // a number that grows with each grant
	releases bool // it says what happened to a release
}

// client is the client of one process, with connections of its own.
type client interface {
	lock(name string) workload.Lock
	close()
}

var libraries = []library{ours, redsyncs, redislocks, rueidislocks}

const forEver = 24 * time.Hour // the trust in a hold whose library does not say how long

// version is the version of the library, with its name.
func (l library) version() string {
	if l.name == ours.name {
		return l.name + " of this repository"
	}
	return l.name + " " + versionOf(l.module)
}

// versionOf is the version in go.mod, because a test binary does not know the versions of its
// modules.
func versionOf(module string) string {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == module {
			return words[1]
		}
	}
	return "of unknown version"
}

// connect makes a go-redis client with default options, as in the documentation of every library.
func connect(addr string, size scale) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: size.readTimeout})
}
