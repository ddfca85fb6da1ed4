package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lua"
)

// Op is an operation of which FailNext fails a command.
type Op string

const (
	// OpLock is a command that acquires: of Lock, TryLock, Do or TryDo of a mutex, or of Acquire,
	// TryAcquire, Do or TryDo of a semaphore. Attach sends the command of a handoff, which belongs to
	// OpUnlock.
	OpLock Op = "lock"
	// OpUnlock is a command that releases: of Unlock, UnlockAfter, Export, Release and ReleaseAfter, and of Do,
	// TryDo and the background.
	OpUnlock Op = "unlock"
	// OpRenew is a renewal of locks or permits by the watchdog.
	OpRenew Op = "renew"
)

// scripts are the scripts that the commands of an operation run.
var scripts = map[Op][]string{
	OpLock:   {"mutex/acquire", "fair/join", "semaphore/acquire"},
	OpUnlock: {"mutex/release", "mutex/transfer", "mutex/keep", "fair/leave", "semaphore/release", "semaphore/keep"},
	OpRenew:  {"mutex/renew", "semaphore/renew"},
}

// instead says what makes a client return an error that is no error reply of Redis.
var instead = map[error]string{
	redlatch.ErrNotAcquired:  "HoldElsewhere",
	redlatch.ErrLost:         "Lose",
	redlatch.ErrUnavailable:  "Down",
	redlatch.ErrClosed:       "Close of the client",
	redis.ErrClosed:          "Close of Redis",
	context.Canceled:         "a context that ends",
	context.DeadlineExceeded: "a context that ends",
}

// FailNext makes Redis answer the next command of an operation with an error, instead of running it.
// Several calls for one operation fail as many commands, one after the other. Commands of Client, of
// the clients of NewClient, and of Redis count. If no such command comes before the test ends, the test
// fails.
//
// The text of err is the text of the error reply, and the client treats it as any reply of Redis:
//
//   - A text that begins with a code for a refusal, such as NOPERM or OOM, or redlatch.ErrRefused: a
//     Lock returns an error that matches redlatch.ErrRefused.
//   - A text that begins with a code for a state that passes, such as LOADING or READONLY: the client
//     tries again, and its next attempt succeeds.
//   - Any other text: the client does not know whether the command ran. A Lock returns an error that
//     matches redlatch.ErrIndeterminate.
//
// The error that a call returns also matches err. An Unlock and a renewal try again after any error.
// So one failure of them delays them, and shows in the logs only.
func (s *Server) FailNext(op Op, err error) {
	s.t.Helper()
	names := scripts[op]
	if names == nil {
		s.t.Fatalf("redlatchtest: FailNext: there is no operation %q", op)
	}
	if err == nil {
		s.t.Fatalf("redlatchtest: FailNext(%s) without an error", op)
	}
	for known, method := range instead {
		if errors.Is(err, known) {
			s.t.Fatalf("redlatchtest: FailNext: %v is no error reply of Redis: use %s", err, method)
		}
	}
	if errors.Is(err, redlatch.ErrRefused) {
		err = fmt.Errorf("NOPERM %w", err)
	}
	text := strings.Join(strings.Fields(err.Error()), " ") // an error reply is one line
	s.injected.add(injectedError{
		op: op, text: text, err: err,
		fault: s.program.Inject(redistest.Rule{
			Match:  func(cmd []string) bool { return slices.Contains(names, lua.ScriptName(cmd)) },
			Times:  1,
			Action: redistest.Refuse(text),
		}),
	})
}

// requireInjected fails the test for each error that no command got. The test has shown nothing then.
func (s *Server) requireInjected() {
	s.t.Helper()
	for _, e := range s.injected.all() {
		if e.fault.Bites() == 0 {
			s.t.Errorf("redlatchtest: FailNext(%s, %q): no such command came", e.op, e.text)
		}
		e.fault.Disarm()
	}
}

// injectedErrors are the errors of FailNext.
type injectedErrors struct {
	mu     sync.Mutex
	errors []injectedError
}

type injectedError struct {
	op    Op
	text  string
	err   error
	fault *redistest.Fault
}

func (i *injectedErrors) add(e injectedError) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.errors = append(i.errors, e)
}

func (i *injectedErrors) all() []injectedError {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.errors)
}

// original returns the error reply err with the error of FailNext behind it, if it is such a reply.
func (i *injectedErrors) original(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	for _, e := range i.all() {
		if e.text == reply.Error() {
			return injectedReply{reply, e.err}
		}
	}
	return err
}

// injectedReply is an error reply that matches the error of FailNext.
type injectedReply struct{ reply, original error }

func (r injectedReply) Error() string   { return r.reply.Error() }
func (r injectedReply) Unwrap() []error { return []error{r.reply, r.original} }
