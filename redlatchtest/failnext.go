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

// Op names the commands that FailNext and Fail make fail.
type Op string

const (
	// OpLock is a command that acquires: of Lock, TryLock, Do or TryDo of a mutex, or of Acquire,
	// TryAcquire, Do or TryDo of a semaphore. Attach sends the command of a handoff, which belongs
	// to OpUnlock.
	OpLock Op = "lock"
	// OpUnlock is a command that releases: of Unlock, UnlockAfter, Export, Release and
	// ReleaseAfter, and of Do, TryDo and the background.
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

// FailNext makes Redis answer the next command of an operation with an error, instead of running
// it. Several calls for one operation fail as many commands, one after the other. Commands of
// Client, of the clients of NewClient, and of Redis count. If no such command comes before the test
// ends, the test fails.
//
// The text of err is the text of the error reply, and the client treats it as any reply of Redis:
//
//   - A text that begins with a code for a refusal, such as NOPERM or OOM, or redlatch.ErrRefused:
//     a Lock returns an error that matches redlatch.ErrRefused.
//   - A text that begins with a code for a state that passes, such as LOADING or READONLY: the
//     client tries again, and its next attempt succeeds.
//   - Any other text: the client does not know whether the command ran. A Lock returns an error
//     that matches redlatch.ErrIndeterminate.
//
// The error that a call returns also matches err. An Unlock and a renewal try again after any
// error. So one failure of them delays them, and shows in the logs only.
func (s *Server) FailNext(op Op, err error) {
	s.t.Helper()
	s.inject("FailNext", op, err, 1)
}

// Fail is FailNext for every command of an operation, until stop is called or the test ends. It is
// for an error that lasts. An Unlock tries again after an error reply, until the deadline of its
// context or the end of the lease. The Unlock of Do tries for two seconds, or until the wait
// deadline of its context. If all attempts fail, Do returns redlatch.ErrRefused for a refusal, and
// nil otherwise. stop may be called several times.
func (s *Server) Fail(op Op, err error) (stop func()) {
	s.t.Helper()
	return s.inject("Fail", op, err, always).Disarm
}

// always is the value of Times for a rule without an end.
const always = 0

// inject makes Redis answer some commands of an operation with an error. caller is the method that
// the test has called.
func (s *Server) inject(caller string, op Op, err error, times int) *redistest.Fault {
	s.t.Helper()
	names := scripts[op]
	if names == nil {
		s.t.Fatalf("redlatchtest: %s: there is no operation %q", caller, op)
	}
	if err == nil {
		s.t.Fatalf("redlatchtest: %s(%s) without an error", caller, op)
	}
	for known, method := range instead {
		if errors.Is(err, known) {
			s.t.Fatalf("redlatchtest: %s: %v is no error reply of Redis: use %s", caller, err, method)
		}
	}
	if errors.Is(err, redlatch.ErrRefused) {
		err = fmt.Errorf("NOPERM %w", err)
	}
	text := strings.Join(strings.Fields(err.Error()), " ") // an error reply is one line
	fault := s.program.Inject(redistest.Rule{
		Match:  func(cmd []string) bool { return slices.Contains(names, lua.ScriptName(cmd)) },
		Times:  times,
		Action: redistest.Refuse(text),
	})
	s.injected.add(injectedError{caller, op, text, err, fault})
	return fault
}

// requireInjected fails the test for each error that no command got. The test has shown nothing
// then.
func (s *Server) requireInjected() {
	s.t.Helper()
	for _, e := range s.injected.all() {
		if e.fault.Bites() == 0 {
			s.t.Errorf("redlatchtest: %s(%s, %q): no such command came", e.caller, e.op, e.text)
		}
	}
}

// injectedErrors are the errors of FailNext and Fail.
type injectedErrors struct {
	mu     sync.Mutex
	errors []injectedError
}

type injectedError struct {
	caller string // the method that the test has called
	op     Op
	text   string
	err    error
	fault  *redistest.Fault
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

// end ends all errors.
func (i *injectedErrors) end() {
	for _, e := range i.all() {
		e.fault.Disarm()
	}
}

// original wraps err with the errors of the test that have the same text.
func (i *injectedErrors) original(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	var originals []error
	for _, e := range i.all() {
		if e.text == reply.Error() {
			originals = append(originals, e.err)
		}
	}
	if originals == nil {
		return err
	}
	return injectedReply{reply, originals}
}

// injectedReply is an error reply that matches the error of the test.
type injectedReply struct {
	reply     error
	originals []error // several if the test has errors of one text
}

func (r injectedReply) Error() string   { return r.reply.Error() }
func (r injectedReply) Unwrap() []error { return append([]error{r.reply}, r.originals...) }
