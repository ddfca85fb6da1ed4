package redlatchtest_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// fakeT is a test that may fail, and ends when run returns.
type fakeT struct {
	testing.TB // not used; no other package can implement it

	mu       sync.Mutex
	failures []string
	output   bytes.Buffer
	ended    bool
	cleanups []func()
}

func (t *fakeT) Helper()           {}
func (t *fakeT) Output() io.Writer { return t }
func (t *fakeT) Skipped() bool     { return false }
func (t *fakeT) Failed() bool      { return len(t.failed()) > 0 }

func (t *fakeT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *fakeT) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *fakeT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *fakeT) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		panic("Log in goroutine after the test has completed")
	}
	return t.output.Write(line)
}

func (t *fakeT) failed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

// run runs a test to its end, and returns what it failed with and what it wrote.
func run(test func(t testing.TB)) (failures []string, output string) {
	fake := &fakeT{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(fake)
	}()
	<-done
	for n := len(fake.cleanups) - 1; n >= 0; n-- {
		fake.cleanups[n]()
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	fake.ended = true
	return fake.failures, fake.output.String()
}

// example runs the test that an example shows.
func example(test func(t testing.TB)) {
	if failures, _ := run(test); len(failures) > 0 {
		panic(strings.Join(failures, "\n"))
	}
}
