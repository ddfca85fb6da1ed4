// Package lockerr has the errors of redlatch: a few values to compare with errors.Is, and typed
// errors that carry the facts. The root package exports the same values.
//
// The errors never confuse three things. Someone else holds the lock ([ErrNotAcquired]). Redis did
// not do its part ([ErrUnavailable], [ErrRefused], [ErrIndeterminate]). The caller's context ended;
// errors.Is always finds that, also beside the other two.
//
// Errors name a lock as Redis does, with the prefix of redlatch.WithPrefix.
//
// The text of every error is one line. Control characters in foreign text, such as that of a cause,
// show as in a Go string.
//
// A context may end because of an error of redlatch: its cause is the error of another call, or
// says that another lock was lost. Errors show the text of such a cause. errors.Is and errors.As
// find what the program has put into the cause, but none of the errors of this package. The errors
// of this package say what happened to the lock of the call itself.
package lockerr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/internal/oneline"
)

var (
	// ErrNotAcquired says that someone else holds the lock: a try was refused, or the wait ended
	// first. Nothing was changed in Redis.
	ErrNotAcquired = errors.New("redlatch: not acquired")

	// ErrRemoved says that an operator removed the waiter from the queue. It comes together with
	// ErrNotAcquired.
	ErrRemoved = errors.New("redlatch: removed from the queue by an operator")

	// ErrLost says that a hold ended although its holder did not release it. It expired, was
	// removed, or could not be confirmed in time. Someone else may now use what it guarded. The
	// context of a lost hold is cancelled, so an error may match both ErrLost and context.Canceled.
	// Compare with ErrLost first.
	ErrLost = errors.New("redlatch: lost")

	// ErrNotHeld says that there is nothing to release: the hold was released before. Nothing was
	// changed in Redis.
	ErrNotHeld = errors.New("redlatch: not held")

	// ErrIndeterminate says that the client sent a command and does not know its outcome: no answer
	// came in time, or the answer left it open. The client cleans up in the background what the
	// command may have left.
	ErrIndeterminate = errors.New("redlatch: outcome unknown")

	// ErrUnavailable says that the client could not ask Redis in time: Redis was unreachable,
	// loading, busy or failing over. Nothing was changed in Redis.
	ErrUnavailable = errors.New("redlatch: redis is not available")

	// ErrRefused says that Redis answered with an error that a retry does not cure, such as a
	// permission, a key of another type, or a server out of memory. Nothing was changed in Redis.
	// Do also returns it if Redis refused the release after the work. In that case [OpError].Op is
	// "unlock" or "release". With redlatch.WithReplicas, somebody may have seen the lock held until
	// the client released it again.
	ErrRefused = errors.New("redlatch: refused by redis")

	// ErrNotReplicated says that too few replicas acknowledged a grant in time, so the client
	// released it. Only locks with redlatch.WithReplicas return it.
	ErrNotReplicated = errors.New("redlatch: not replicated")

	// ErrClosed says that the client was closed. With redis.ErrClosed beside it, the go-redis
	// client under it was closed.
	ErrClosed = errors.New("redlatch: client is closed")

	// ErrConfig says that a name or a setting is not usable. Nothing was changed in Redis.
	ErrConfig = errors.New("redlatch: bad configuration")
)

// NotAcquiredError is the [ErrNotAcquired] of one lock. It says who held the lock when Redis was
// last asked. That may be out of date when it is read.
type NotAcquiredError struct {
	Name        string        // the lock
	Holder      string        // the acquisition that holds it; empty if the wait ended behind others of this process, before Redis was asked
	Description string        // the description of the holder, as Redis stores it: quote it before you print it; empty if none
	Remaining   time.Duration // of the holder's lease; 0 if not known, negative if it has no end
	AcquiredAt  string        // where this program acquired the lock, as directory/file:line; only for a mutex that this client holds itself
	Err         error         // why the wait ended; nil for a try

	// For locks with a queue; otherwise zero.
	Position int       // in the queue, where 1 is next; for a try, the position it would have had
	Length   int       // of the queue
	Since    time.Time // about when the holder got the lock, by the server's clock; zero if that is not known

	// For semaphores; otherwise zero.
	InUse int // units; above Limit after the limit was lowered
	Limit int
}

// IsKept reports whether nobody holds the lock, and Redis keeps it after an UnlockAfter or an
// Export. Holder is then the id under which Redis keeps it, and Description is that of the last
// holder.
func (e *NotAcquiredError) IsKept() bool { return keptid.Is(e.Holder) }

// Error says who holds the lock and for how long, the place in the queue, and why the wait ended,
// as far as these are known.
func (e *NotAcquiredError) Error() string {
	msg := fmt.Sprintf("redlatch: lock %q not acquired", e.Name)
	if e.Limit > 0 {
		msg = fmt.Sprintf("redlatch: semaphore %q not acquired: %d of %d in use", e.Name, e.InUse, e.Limit)
	}
	if e.Holder != "" {
		if e.IsKept() {
			msg += ": kept"
		} else {
			msg += ": held by " + visible(e.Holder)
		}
		if e.Description != "" {
			msg += " (" + visible(e.Description) + ")"
		}
		switch {
		case e.Remaining < 0:
			msg += " without an end"
		case e.Remaining > 0:
			msg += fmt.Sprintf(" for %v more", rounded(e.Remaining))
			if !e.IsKept() {
				msg += " unless renewed"
			}
		}
		if e.AcquiredAt != "" {
			msg += ", acquired by this client at " + e.AcquiredAt + " (if that is your own call chain, pass the context of that hold)"
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
		msg += ": " + inner(e.Err)
	}
	return msg
}

// Unwrap makes errors.Is find ErrNotAcquired and the end of the context.
func (e *NotAcquiredError) Unwrap() []error { return withCause(ErrNotAcquired, e.Err) }

// NotReplicatedError is the [ErrNotReplicated] of one grant.
type NotReplicatedError struct {
	Name         string // the lock
	IsPermit     bool   // Name is a semaphore
	Needed       int    // the replicas that had to acknowledge the grant
	Acknowledged int    // those that did in time
}

// Error says how many replicas acknowledged the grant, and how many had to.
func (e *NotReplicatedError) Error() string {
	return fmt.Sprintf("redlatch: %s %q not replicated: %d of %d replicas acknowledged it in time", lockOrPermit(e.IsPermit), e.Name, e.Acknowledged, e.Needed)
}

// Unwrap makes errors.Is find ErrNotReplicated.
func (e *NotReplicatedError) Unwrap() error { return ErrNotReplicated }

// LostError is the [ErrLost] of one hold, and the cause with which its context ends.
type LostError struct {
	Name     string        // the lock
	IsPermit bool          // Name is a semaphore
	ID       string        // which grant of it
	Reason   LossReason    // what is known about how it ended
	Lease    time.Duration // the lease it was kept alive with
	Age      time.Duration // from the grant to the moment the loss was noticed
}

// LossReason says how a hold was lost. It is the text that [LostError] shows.
type LossReason string

// The reasons of a loss.
const (
	// LossGone: Redis answered that it no longer has the lock for this hold.
	LossGone LossReason = "redis no longer has it: it expired, was removed or was taken over"
	// LossUnconfirmed: Redis did not confirm the lease in time. Redis may still have the lock until
	// its lease ends.
	LossUnconfirmed LossReason = "its lease could not be confirmed in time"
	// LossNotRenewed: the lease ended and the client did not renew it, because of
	// redlatch.WithoutRenewal, or because all handles of the lock were garbage collected.
	LossNotRenewed LossReason = "its lease is over, and was not to be renewed"
	// LossMaxHold: the time of redlatch.WithMaxHold is over.
	LossMaxHold LossReason = "its maximum hold time is over"
	// LossNoProgress: the work did not report progress in the time of redlatch.WithProgressTimeout.
	LossNoProgress LossReason = "its work reported no progress in time"
	// LossExported: Redis no longer has the exported lock. Most often Attach came too late, or the
	// text was attached before.
	LossExported LossReason = "redis no longer has it: it ended, was taken over, or was attached before"
)

// Error says how the hold was lost, which grant it was, and how old.
func (e *LostError) Error() string {
	if e.Lease == 0 { // an exported hold of somebody else
		return fmt.Sprintf("redlatch: lock %q lost: %s (acquisition %s)", e.Name, e.Reason, e.ID)
	}
	return fmt.Sprintf("redlatch: %s %q lost: %s (acquisition %s, lease %v, age %v)",
		lockOrPermit(e.IsPermit), e.Name, e.Reason, e.ID, rounded(e.Lease), rounded(e.Age))
}

// Unwrap makes errors.Is find ErrLost.
func (e *LostError) Unwrap() error { return ErrLost }

// OpError is an operation on one lock that failed for the reason in Kind. Kind is one of
// [ErrNotHeld], [ErrIndeterminate], [ErrUnavailable], [ErrRefused] and [ErrClosed]. It is nil if
// the context of the caller had ended before the client asked anything.
//
// If Do could not acquire the lock, Op is "lock", "acquire" or "attach". If Do could not release it
// after its function, Op is "unlock" or "release". The function may also return the OpError of a
// lock that it used itself.
type OpError struct {
	Kind error  // one of the values above, or nil
	Op   string // the operation: "lock", "unlock", ...
	Name string // the lock
	Err  error  // what Redis, the network or the context said; may be nil

	// Reentry says that the call was to re-enter the lock. Its call chain has the lock already, so
	// work under the lock has begun. If Reentry is false, the work of a failed "lock" or "acquire"
	// has not begun, unless Kind is [ErrClosed].
	Reentry bool

	Attempts int           // how often the client sent the command, or tried to
	Elapsed  time.Duration // how long these attempts took, with the pauses between them
}

// Error begins with the operation and the lock, and goes on with the reason. After several attempts
// it ends with their number.
func (e *OpError) Error() string {
	msg := fmt.Sprintf("redlatch: %s %q", e.Op, e.Name)
	if e.Reentry {
		msg += " again"
	}
	for _, err := range withCause(e.Kind, e.Err) {
		msg += ": " + inner(err)
	}
	if e.Attempts > 1 {
		msg += fmt.Sprintf(" (%d attempts in %v)", e.Attempts, rounded(e.Elapsed))
	}
	return msg
}

// Unwrap makes errors.Is find the kind and what is behind it.
func (e *OpError) Unwrap() []error { return withCause(e.Kind, e.Err) }

// ConfigError is the [ErrConfig] of one value.
type ConfigError struct {
	Setting string // the name of the setting
	Option  string // the function that sets it; empty if it is an argument
	Value   any    // the value that was refused
	Reason  string // what it has to be
}

// Error names the setting, the option that sets it, and the value, and says what it has to be.
func (e *ConfigError) Error() string {
	setting := e.Setting
	if e.Option != "" {
		setting += " (" + e.Option + ")"
	}
	return fmt.Sprintf("redlatch: %s is %s: %s", setting, printable(e.Value), e.Reason)
}

// Unwrap makes errors.Is find ErrConfig.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// LimitError is the [ErrConfig] of a semaphore whose limit in Redis does not fit the program. Redis
// has another limit, or a limit below the units that were requested. Nothing was changed in Redis.
// Resize changes the limit.
type LimitError struct {
	Name      string // the semaphore
	Requested int    // the limit that the program passed
	Limit     int    // the limit in Redis
	Declared  int    // the other limit that is accepted, which programs from before a Resize pass; may be the same
	Units     int    // the units requested, if more than Limit; 0 if Requested does not fit
}

// Error says which limit Redis has, and what the program passed or requested.
func (e *LimitError) Error() string {
	if e.Units > 0 {
		return fmt.Sprintf("redlatch: semaphore %q has a limit of %d now: %d units can never be acquired", e.Name, e.Limit, e.Units)
	}
	msg := fmt.Sprintf("redlatch: semaphore %q has a limit of %d", e.Name, e.Limit)
	if e.Declared != e.Limit {
		msg += fmt.Sprintf(" (declared as %d)", e.Declared)
	}
	return msg + fmt.Sprintf(", but this program passed %d", e.Requested)
}

// Unwrap makes errors.Is find ErrConfig.
func (e *LimitError) Unwrap() error { return ErrConfig }

// inner returns the text of an error inside of another one.
func inner(err error) string { return oneline.OneLine(strings.TrimPrefix(err.Error(), "redlatch: ")) }

// rounded leaves out digits that nobody reads.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d
}

func lockOrPermit(isPermit bool) string {
	if isPermit {
		return "permit of semaphore"
	}
	return "lock"
}

func withCause(kind, cause error) []error {
	return slices.DeleteFunc([]error{kind, cause}, func(err error) bool { return err == nil })
}

// visible returns text that others have stored in Redis. It quotes the text if the text could
// damage a log, is long, or has invisible characters.
func visible(text string) string {
	const long = 256 // what we store ourselves is shorter
	if quoted := strconv.Quote(text); len(text) > long || quoted != `"`+text+`"` || strings.ContainsFunc(text, oneline.IsInvisible) {
		return printable(text)
	}
	return text
}

// printable shows a bad value without letting it damage a log. It quotes and cuts text, since a
// name that was refused for its length may be very long. If a text has invisible characters,
// everything that is not ASCII shows by its number, because %q takes some of them for printable.
func printable(v any) string {
	s, ok := v.(string)
	if !ok {
		return fmt.Sprint(v)
	}
	const most = 80
	quoted := strconv.Quote
	if strings.ContainsFunc(s, oneline.IsInvisible) {
		quoted = strconv.QuoteToASCII
	}
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes)", quoted(s[:most]), len(s))
	}
	return quoted(s)
}
