// Package key builds every name that redlatch uses in Redis: the only place
// that knows the layout. docs/keyspace.md shows it to operators.
//
// The layout of the mutex is the one of Redisson 4 (RLock and RFencedLock), so
// that Java and Go exclude each other.
package key

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch/lockerr"
)

// MaxNameLen is the longest name accepted, in bytes, the prefix included. Redis
// takes far longer keys; a name beyond this is a mistake (a document passed
// where its id was meant) and would be copied into every command and log line.
const MaxNameLen = 512

// Mutex has the keys and the channel of one mutex.
type Mutex struct {
	Lock    string // hash, lives as long as the lease: acquisition -> holds
	Fence   string // string: the last fence given out
	Channel string // "0" is published here when the lock is released
	Slot    int    // hash slot of both keys in a cluster
}

// Fair has the keys of one fair mutex: those of the mutex, which it excludes, and
// its queue.
type Fair struct {
	Mutex
	Queue string // sorted set: waiter -> ticket
	Alive string // sorted set: waiter -> end of its heartbeat, server ms
}

// Semaphore has the keys of one semaphore. They have nothing in common with those
// of a lock of the same name.
type Semaphore struct {
	Name    string
	Permits string // sorted set: entries of permits -> end of their lease; and the limits
	Holders string // hash: acquisition -> since, units, what it says of itself
	Queue   string // sorted set: waiter -> ticket
	Alive   string // sorted set: waiter -> end of its heartbeat, server ms
	Slot    int    // hash slot of all keys in a cluster
}

const (
	fencePrefix = "redisson_lock_token"
	ourPrefix   = "redlatch:" // of everything that is not Redisson's layout
	queuePrefix = ourPrefix + "queue"
	alivePrefix = ourPrefix + "alive"

	// ClientPrefix and a client's id are the channel on which that client is told
	// what became of its waiters. An id is random and stands in the queue, so who
	// may not read the one cannot write to the other.
	ClientPrefix = "redlatch:client:"
)

// ForFair builds the keys of the fair mutex with this name, which CheckName has
// accepted.
func ForFair(name string) Fair {
	return Fair{Mutex: ForMutex(name), Queue: prefixed(queuePrefix, name), Alive: prefixed(alivePrefix, name)}
}

// ForSemaphore builds the keys of the semaphore with this name, which CheckName
// has accepted.
func ForSemaphore(name string) Semaphore {
	return Semaphore{
		Name:    name,
		Permits: prefixed(ourPrefix+"permits", name),
		Holders: prefixed(ourPrefix+"holders", name),
		Queue:   prefixed(ourPrefix+"permits-queue", name),
		Alive:   prefixed(ourPrefix+"permits-alive", name),
		Slot:    Slot(prefixed(ourPrefix+"permits", name)),
	}
}

// ForMutex builds the keys of the mutex with this name, which CheckName has
// accepted.
func ForMutex(name string) Mutex {
	return Mutex{
		Lock:    name,
		Fence:   prefixed(fencePrefix, name),
		Channel: prefixed("redisson_lock__channel", name),
		Slot:    Slot(name),
	}
}

// prefixed follows Redisson's rule: braces are added around the name unless it
// has some already, so that the derived key shares the slot of the name.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// CheckName accepts a name whose keys all fall into one slot and that can be
// shown in a terminal and a log. Spaces, colons and any printable letter of any
// script are fine; control characters and bytes that are no UTF-8 are not,
// because what operators paste and grep would not be what is stored; and braces
// must form exactly one non-empty tag, because otherwise the derived keys land
// in other slots than the lock. The error is a *lockerr.ConfigError.
func CheckName(name string) error {
	if why := badName(name); why != "" {
		return &lockerr.ConfigError{What: "lock name", Value: name, Why: why}
	}
	return nil
}

func badName(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > MaxNameLen:
		return "must not be longer than 512 bytes"
	case !utf8.ValidString(name):
		return "must be valid UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "must not contain control characters"
	case strings.HasPrefix(name, fencePrefix+":"):
		return "is the key of another lock's fence"
	case hasOurPrefix(name):
		return "is the key of another lock's queue, or of a semaphore"
	case !goodBraces(name):
		return "braces must form exactly one non-empty {tag}"
	}
	return ""
}

// hasOurPrefix finds the names of our own keys, and no others: a program may well
// use a prefix that begins like them.
func hasOurPrefix(name string) bool {
	for _, kind := range []string{"queue", "alive", "permits", "holders", "permits-queue", "permits-alive"} {
		if strings.HasPrefix(name, ourPrefix+kind+":") {
			return true
		}
	}
	return false
}

func goodBraces(name string) bool {
	if !strings.ContainsAny(name, "{}") {
		return true
	}
	before, rest, opened := strings.Cut(name, "{")
	tag, after, closed := strings.Cut(rest, "}")
	return opened && closed && tag != "" &&
		!strings.ContainsAny(before, "}") && !strings.ContainsAny(tag, "{") && !strings.ContainsAny(after, "{}")
}
