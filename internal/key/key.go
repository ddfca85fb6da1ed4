// Package key builds every name that redlatch uses in Redis: the only place
// that knows the layout. docs/keyspace.md shows it to operators.
//
// The layout of the mutex is the one of Redisson 4 (RLock and RFencedLock), so
// that Java and Go exclude each other.
package key

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/joined"
	"github.com/redlatch/redlatch/lockerr"
)

// MaxNameLen is the longest name accepted, in bytes, the prefix included. Redis
// takes far longer keys; a name beyond this is a mistake (a document passed
// where its id was meant) and would be copied into every command and log line.
const MaxNameLen = 512

// MaxDescriptionLen is the longest description of a holder, in bytes.
const MaxDescriptionLen = 256

// Mutex has the keys and the channel of one mutex.
type Mutex struct {
	Lock    string // hash, lives as long as the lease: acquisition -> holds
	Fence   string // string: the last fence given out
	Channel string // "0" is published here when the lock is released
	Slot    int    // hash slot of all keys in a cluster

	// Of the fair mutex of the name.
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

	// ClientPrefix and a client's id are the channel on which that client is told
	// what became of its waiters. The id is no secret: it stands in queues, errors and
	// logs. So a message is only a hint, and a waiter asks Redis before it believes one.
	ClientPrefix = "redlatch:client:"
)

// ForSemaphore builds the keys of the semaphore with this name, which CheckName
// has accepted.
func ForSemaphore(name string) Semaphore {
	return Semaphore{
		Name:    name,
		Permits: ours("permits", name),
		Holders: ours("holders", name),
		Queue:   ours("permits-queue", name),
		Alive:   ours("permits-alive", name),
		Slot:    Slot(name),
	}
}

// ForMutex builds the keys of the mutex with this name, which CheckName has
// accepted.
func ForMutex(name string) Mutex {
	return Mutex{
		Lock:    name,
		Fence:   redissons(fencePrefix, name),
		Channel: redissons("redisson_lock__channel", name),
		Slot:    Slot(name),
		Queue:   ours("queue", name),
		Alive:   ours("alive", name),
	}
}

// redissons follows Redisson's rule: it adds braces around the name unless the name
// has some already, so that the derived key shares the slot of the name. The names
// x and {x} therefore share their fence and their channel. docs/keyspace.md says why
// that is harmless.
func redissons(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// ours builds a key of our own, in the slot of the name. No two names share one: a
// name with braces comes after two colons, a name without them in braces after one.
func ours(kind, name string) string {
	if strings.Contains(name, "{") {
		return ourPrefix + kind + "::" + name
	}
	return ourPrefix + kind + ":{" + name + "}"
}

// CheckName accepts a name whose keys all fall into one slot and that can be
// shown in a terminal and a log. Spaces, colons and any visible letter of any
// script are fine; see badText for what is not; and braces must form exactly one
// non-empty tag, because otherwise the derived keys land in other slots than the
// lock. The error is a *lockerr.ConfigError.
func CheckName(name string) error { return check("lock name", name, badName(name)) }

// CheckPrefix accepts what a name may begin with. Its braces, if any, form a tag of
// its own: a prefix that opens a brace for names to close could have one service share
// fences with another.
func CheckPrefix(prefix string) error { return check("prefix", prefix, badName(prefix+"x")) }

// CheckDescription accepts what can be shown in a terminal and a log.
func CheckDescription(text string) error {
	why := badText(text)
	if len(text) > MaxDescriptionLen {
		why = "must not be longer than 256 bytes"
	}
	return check("description", text, why)
}

func check(what, value, why string) error {
	if why == "" {
		return nil
	}
	return &lockerr.ConfigError{What: what, Value: value, Why: why}
}

// badText finds what would not be shown as it is stored: bytes that are no UTF-8,
// control characters, and characters that nobody sees, such as marks of direction and
// joiners. They would let two names look alike, and a text do something to the terminal
// that shows it.
func badText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "must not contain control characters"
	case strings.ContainsFunc(text, joined.IsUnseen):
		return "must not contain characters that cannot be seen"
	}
	return ""
}

// IsAcquisition reports whether a field of a lock's hash is one that locks have, ours
// or Redisson's: <uuid>:<number>.
func IsAcquisition(field string) bool {
	id, number, _ := strings.Cut(field, ":")
	_, err := strconv.ParseInt(number, 10, 64)
	return err == nil && len(id) == 36 && uuid.Validate(id) == nil
}

func badName(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > MaxNameLen:
		return "must not be longer than 512 bytes"
	case badText(name) != "":
		return badText(name)
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
