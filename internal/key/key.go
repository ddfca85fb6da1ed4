// Package key builds every name that redlatch uses in Redis. It is the only place that knows the
// layout. docs/keyspace.md shows the layout to operators.
//
// The layout of the mutex is that of Redisson 4 (RLock and RFencedLock), so that Java and Go
// exclude each other.
package key

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// MaxNameLen is the length of the longest name, in bytes, with the prefix. Redis accepts far longer
// keys. But a longer name is a mistake, such as a document in the place of its id. Every command
// and log line would contain it.
const MaxNameLen = 512

// MaxDescriptionLen is the length of the longest description of a holder, in bytes.
const MaxDescriptionLen = 256

// Mutex contains the keys and the channel of one mutex.
type Mutex struct {
	Lock    string // hash, lives as long as the lease: acquisition -> holds; and the description
	Fence   string // string: the last fence given out
	Channel string // a release publishes "0" here

	// Of the fair mutex of the name.
	Queue string // sorted set: waiter -> ticket
	Alive string // sorted set: waiter -> end of its heartbeat, server ms

	Args MutexArgs
}

// MutexArgs contains the strings of a Mutex as arguments of commands. A conversion to any
// allocates, so it is done once for a lock, and not for each of its commands.
type MutexArgs struct{ Lock, Fence, Channel, Queue, Alive any }

// Semaphore contains the keys of one semaphore. It shares no key with the lock of the same name.
type Semaphore struct {
	Name    string
	Permits string // sorted set: entries of permits -> end of their lease; and the limits
	Holders string // hash: acquisition -> since, units, description
	Queue   string // sorted set: waiter -> ticket
	Alive   string // sorted set: waiter -> end of its heartbeat, server ms

	Args SemaphoreArgs
}

// SemaphoreArgs contains the keys of a Semaphore as arguments of commands, see MutexArgs.
type SemaphoreArgs struct{ Permits, Holders, Queue, Alive any }

const (
	fencePrefix = "redisson_lock_token"

	// ChannelPrefix begins the names of the channels that clients of Redisson use too.
	ChannelPrefix = "redisson_lock__channel"

	ownPrefix = "redlatch:" // of everything that is not Redisson's layout

	// ClientPrefix, followed by a client's id, is the channel on which the client is notified of
	// its waiters. The id is not secret: queues, errors and logs contain it. So a message is only a
	// hint, and a waiter asks Redis before it relies on one.
	ClientPrefix = "redlatch:client:"
)

// ClientInSlot returns the channel of a client for waiters of one name, in the slot of the name.
// Scripts publish there if Redis refuses the other channel of the client.
func ClientInSlot(client, name string) string {
	tag := "{" + name + "}"
	if opened := strings.Index(name, "{"); opened >= 0 {
		tag = name[opened : strings.Index(name, "}")+1]
	}
	return ClientPrefix + client + ":" + tag
}

// IsSharded reports whether somebody may publish to the sharded channel of that name only: a client
// of Redisson, or a service that has no others.
func IsSharded(channel string) bool {
	return strings.HasPrefix(channel, ChannelPrefix) || strings.HasPrefix(channel, ClientPrefix) && strings.HasSuffix(channel, "}")
}

// ForSemaphore builds the keys of the semaphore with this name. CheckName must have accepted it.
func ForSemaphore(name string) Semaphore {
	k := Semaphore{
		Name:    name,
		Permits: ownKey("permits", name),
		Holders: ownKey("holders", name),
		Queue:   ownKey("permits-queue", name),
		Alive:   ownKey("permits-alive", name),
	}
	k.Args = SemaphoreArgs{k.Permits, k.Holders, k.Queue, k.Alive}
	return k
}

// ForMutex builds the keys of the mutex with this name. CheckName must have accepted it.
func ForMutex(name string) Mutex {
	k := Mutex{
		Lock:    name,
		Fence:   redissonKey(fencePrefix, name),
		Channel: redissonKey(ChannelPrefix, name),
		Queue:   ownKey("queue", name),
		Alive:   ownKey("alive", name),
	}
	k.Args = MutexArgs{k.Lock, k.Fence, k.Channel, k.Queue, k.Alive}
	return k
}

// ForEcho builds the names for the echoes of a client, with which it checks that messages reach it.
// They are those of a mutex that nobody locks, so a user who may lock names with the prefix needs
// no further permission.
func ForEcho(prefix, client string) Mutex { return ForMutex(prefix + "redlatch-echo:" + client) }

// redissonKey follows Redisson's rule: it adds braces around a name that has none, so that the
// derived key shares the slot of the name. The names x and {x} therefore share their fence and
// their channel. docs/keyspace.md says why that is harmless.
func redissonKey(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// ownKey builds a key of our own, in the slot of the name. No two names share such a key: a name
// with braces comes after two colons, and a name without braces comes in braces after one colon.
func ownKey(kind, name string) string {
	if strings.Contains(name, "{") {
		return ownPrefix + kind + "::" + name
	}
	return ownPrefix + kind + ":{" + name + "}"
}

// CheckName accepts a name if all its keys fall into one slot, and if it can be shown in a terminal
// and a log. Spaces, colons and visible letters of every script are fine; textProblem says what is
// not. Braces must form exactly one non-empty tag, because otherwise derived keys would fall into
// other slots than the lock. The error is a *lockerr.ConfigError.
func CheckName(name string) error { return check("lock name", "", name, nameProblem(name)) }

// CheckPrefix accepts a prefix of names. Its braces, if any, must form a complete tag. If names
// could close a brace that the prefix opens, one service could share fences with another.
func CheckPrefix(prefix string) error {
	return check("prefix", "WithPrefix", prefix, nameProblem(prefix+"x"))
}

// CheckDescription accepts text that can be shown in a terminal and a log.
func CheckDescription(text string) error {
	why := textProblem(text)
	if len(text) > MaxDescriptionLen {
		why = "must not be longer than 256 bytes"
	}
	return check("description", "WithDescription", text, why)
}

func check(what, option, value, why string) error {
	if why == "" {
		return nil
	}
	return &lockerr.ConfigError{Setting: what, Option: option, Value: value, Reason: why}
}

// textProblem says what is wrong with text that would not be shown as it is stored: bytes that are
// not UTF-8, control characters, and characters that nobody sees, such as joiners and marks of
// direction. With them, two names could look alike, and a text could control the terminal that
// shows it.
func textProblem(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "must not contain control characters"
	case strings.ContainsFunc(text, oneline.IsInvisible):
		return "must not contain characters that cannot be seen"
	}
	return ""
}

// IsAcquisition reports whether a field of a lock's hash is an acquisition, ours or Redisson's:
// <uuid>:<number>. Or it is the id of a kept lock: kept-<uuid>:<number>.
func IsAcquisition(field string) bool {
	id, number, _ := strings.Cut(strings.TrimPrefix(field, keptid.Prefix), ":")
	_, err := strconv.ParseInt(number, 10, 64)
	return err == nil && len(id) == 36 && uuid.Validate(id) == nil
}

func nameProblem(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > MaxNameLen:
		return "must not be longer than 512 bytes"
	case textProblem(name) != "":
		return textProblem(name)
	case strings.HasPrefix(name, fencePrefix+":"):
		return "is the key of another lock's fence"
	case IsOwn(name):
		return "is the key of another lock's queue, or of a semaphore"
	case !bracesFormTag(name):
		return "braces must form exactly one non-empty {tag}"
	}
	return ""
}

// IsOwn reports whether a name has the form of one of our own keys, such as a queue. It is then no
// key of a mutex itself. Other names may begin with ownPrefix, because a program may use a prefix
// like it.
func IsOwn(name string) bool {
	for _, kind := range []string{"queue", "alive", "permits", "holders", "permits-queue", "permits-alive"} {
		if strings.HasPrefix(name, ownPrefix+kind+":") {
			return true
		}
	}
	return false
}

func bracesFormTag(name string) bool {
	if !strings.ContainsAny(name, "{}") {
		return true
	}
	before, rest, opened := strings.Cut(name, "{")
	tag, after, closed := strings.Cut(rest, "}")
	return opened && closed && tag != "" &&
		!strings.ContainsAny(before, "}") && !strings.ContainsAny(tag, "{") && !strings.ContainsAny(after, "{}")
}
