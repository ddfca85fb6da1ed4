// Package lockerr has the errors of redlatch: a few values to compare with
// errors.Is, and typed errors that carry the facts. The root package shows the
// same values under its own name.
//
// Three things are never confused: somebody else has the lock
// ([ErrNotAcquired]), Redis did not do its part ([ErrUnavailable],
// [ErrRefused], [ErrIndeterminate]), and the caller's context ended, which is
// always visible beside the other two through errors.Is.
//
// The text of every error is one line. Control characters in the text of others, such as
// that of a cause, show as in a Go string.
//
// A context may end because of an error of redlatch: its cause is the error of another
// call, or says that another lock was lost. Errors show the text of such a cause.
// errors.Is and errors.As find what the program has put into it, but none of the errors
// of this package: those say what happened to the lock of the call itself.
package lockerr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/joined"
)

var (
	// ErrNotAcquired says that somebody else has the lock: a try was refused,
	// or the wait ended first. Nothing was changed in Redis.
	ErrNotAcquired = errors.New("redlatch: not acquired")

	// ErrRemoved says that an operator took the waiter out of the queue. It is
	// found beside ErrNotAcquired.
	ErrRemoved = errors.New("redlatch: removed from the queue by an operator")

	// ErrLost says that a hold ended without its holder asking: it expired,
	// was removed, or could not be confirmed in time. What it guarded may be
	// in other hands.
	ErrLost = errors.New("redlatch: lost")

	// ErrNotHeld says that there is nothing to release: the hold was released
	// before. Nothing was changed in Redis.
	ErrNotHeld = errors.New("redlatch: not held")

	// ErrIndeterminate says that a command was sent and its outcome was not
	// learned in time, or not from the answer. What it may have left is cleaned up
	// in the background.
	ErrIndeterminate = errors.New("redlatch: outcome unknown")

	// ErrUnavailable says that Redis could not be asked in time: not reached,
	// loading, busy, failing over. Nothing was changed in Redis.
	ErrUnavailable = errors.New("redlatch: redis is not available")

	// ErrRefused says that Redis answered with an error that trying again
	// does not cure, such as a permission, a key of another type, or a server
	// out of memory.
	ErrRefused = errors.New("redlatch: refused by redis")

	// ErrClosed says that the client was closed; with redis.ErrClosed beside it,
	// that the go-redis client under it was.
	ErrClosed = errors.New("redlatch: client is closed")

	// ErrConfig says that a name or a setting is not usable. Nothing was changed
	// in Redis.
	ErrConfig = errors.New("redlatch: bad configuration")
)

// NotAcquiredError is the [ErrNotAcquired] of one lock. It says who had the
// lock when Redis was last asked; by the time it is read that may be history.
type NotAcquiredError struct {
	Name        string        // the lock
	Holder      string        // the acquisition that has it; empty if the wait ended behind others of this process, before Redis was asked
	Description string        // what the holder says of itself, as it stands in Redis: quote it before you print it; empty if nothing
	Remaining   time.Duration // of the holder's lease; 0 if not known, negative if it has no end
	Err         error         // why the wait ended; nil for a try

	// Of locks with a queue; else zero.
	Position int       // in the queue, 1 being the next; for a try, where it would have been
	Length   int       // of the queue
	Since    time.Time // about when the holder got the lock, by the server's clock; zero if that is not known

	// Of semaphores; else zero.
	InUse int // units; above Limit after that was lowered
	Limit int
}

func (e *NotAcquiredError) Error() string {
	msg := fmt.Sprintf("redlatch: lock %q not acquired", e.Name)
	if e.Limit > 0 {
		msg = fmt.Sprintf("redlatch: semaphore %q not acquired: %d of %d in use", e.Name, e.InUse, e.Limit)
	}
	if e.Holder != "" {
		msg += ": held by " + visible(e.Holder)
		if e.Description != "" {
			msg += " (" + visible(e.Description) + ")"
		}
		switch {
		case e.Remaining < 0:
			msg += " without an end"
		case e.Remaining > 0:
			msg += fmt.Sprintf(" for %v more unless renewed", e.Remaining)
		}
	}
	switch {
	case e.Position == 0:
	case e.Position <= e.Length:
		msg += fmt.Sprintf("; place %d, queue of %d", e.Position, e.Length)
	case e.Length == 0: // of a try, which has no place
		msg += "; nobody waits"
	case e.Length == 1:
		msg += "; 1 waits"
	default:
		msg += fmt.Sprintf("; %d wait", e.Length)
	}
	if e.Err != nil {
		msg += ": " + joined.Line(e.Err.Error())
	}
	return msg
}

// Unwrap makes errors.Is find ErrNotAcquired and the end of the context.
func (e *NotAcquiredError) Unwrap() []error { return withCause(ErrNotAcquired, e.Err) }

// LostError is the [ErrLost] of one hold, and the cause with which its context
// ends.
type LostError struct {
	Name        string        // the lock
	Acquisition string        // which grant of it
	Reason      string        // what is known of how it ended
	Lease       time.Duration // the lease it was kept alive with
	Age         time.Duration // from the grant to the moment the loss was noticed
}

func (e *LostError) Error() string {
	return fmt.Sprintf("redlatch: lock %q lost: %s (acquisition %s, lease %v, age %v)",
		e.Name, e.Reason, e.Acquisition, e.Lease, e.Age.Round(time.Millisecond))
}

// Unwrap makes errors.Is find ErrLost.
func (e *LostError) Unwrap() error { return ErrLost }

// OpError is an operation on one lock that failed for the reason in Kind: one
// of [ErrNotHeld], [ErrIndeterminate], [ErrUnavailable], [ErrRefused],
// [ErrClosed]; none of them when the context had ended before anything was asked.
type OpError struct {
	Kind error  // one of the values above, or nil
	Op   string // what was being done: "lock", "unlock", ...
	Name string // the lock
	Err  error  // what Redis, the network or the context said; may be nil
}

func (e *OpError) Error() string {
	msg := fmt.Sprintf("%s %q", e.Op, e.Name)
	if e.Kind != nil {
		msg = fmt.Sprintf("%v: %s", e.Kind, msg)
	} else {
		msg = "redlatch: " + msg
	}
	if e.Err != nil {
		msg += ": " + joined.Line(e.Err.Error())
	}
	return msg
}

// Unwrap makes errors.Is find the kind and what is behind it.
func (e *OpError) Unwrap() []error { return withCause(e.Kind, e.Err) }

// ConfigError is the [ErrConfig] of one value.
type ConfigError struct {
	What  string // the name of the setting
	Value any    // the value that was refused
	Why   string // what it has to be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("redlatch: %s is %s: %s", e.What, printable(e.Value), e.Why)
}

// Unwrap makes errors.Is find ErrConfig.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// LimitError is the [ErrConfig] of a semaphore whose limit in Redis is not what the
// program goes by: another limit is known there, or it has become smaller than what
// was asked for. Nothing was changed in Redis. Resize changes the limit.
type LimitError struct {
	Name     string // the semaphore
	Said     int    // the limit that the program says
	Limit    int    // the limit in Redis
	Declared int    // the other limit that would be accepted, said by programs from before a Resize; may be the same
	Units    int    // more than Limit were asked for; 0: it is Said that does not fit
}

func (e *LimitError) Error() string {
	if e.Units > 0 {
		return fmt.Sprintf("redlatch: semaphore %q has a limit of %d now: %d units can never be acquired", e.Name, e.Limit, e.Units)
	}
	msg := fmt.Sprintf("redlatch: semaphore %q has a limit of %d", e.Name, e.Limit)
	if e.Declared != e.Limit {
		msg += fmt.Sprintf(" (declared as %d)", e.Declared)
	}
	return msg + fmt.Sprintf(", and this program says %d", e.Said)
}

// Unwrap makes errors.Is find ErrConfig.
func (e *LimitError) Unwrap() error { return ErrConfig }

func withCause(kind, cause error) []error {
	return slices.DeleteFunc([]error{kind, cause}, func(err error) bool { return err == nil })
}

// visible is text that others have stored in Redis, quoted where it could damage a log,
// is long, or has characters that nobody sees.
func visible(text string) string {
	const long = 256 // what we store ourselves is shorter
	if quoted := strconv.Quote(text); len(text) > long || quoted != `"`+text+`"` || strings.ContainsFunc(text, joined.IsUnseen) {
		return printable(text)
	}
	return text
}

// printable shows a bad value without letting it damage a log: text is quoted
// and cut, since a name that was refused for its length may be very long. Where a text has
// characters that nobody sees, all that is not ASCII shows by its number: %q takes some of
// them for printable.
func printable(v any) string {
	s, ok := v.(string)
	if !ok {
		return fmt.Sprint(v)
	}
	const most = 80
	quoted := strconv.Quote
	if strings.ContainsFunc(s, joined.IsUnseen) {
		quoted = strconv.QuoteToASCII
	}
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes)", quoted(s[:most]), len(s))
	}
	return quoted(s)
}
