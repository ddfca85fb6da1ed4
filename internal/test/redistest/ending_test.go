package redistest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// ending is a test that only records how it would have ended.
type ending struct {
	testing.TB
	skipped, failed bool
	message         string
}

// endOf runs f as a test, and returns how it ended.
func endOf(f func(testing.TB)) *ending {
	e := &ending{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(e)
	}()
	<-done
	return e
}

func (e *ending) Helper() {}

func (e *ending) Skip(args ...any) {
	e.skipped, e.message = true, fmt.Sprint(args...)
	runtime.Goexit()
}

func (e *ending) Fatal(args ...any) {
	e.failed, e.message = true, fmt.Sprint(args...)
	runtime.Goexit()
}

func (e *ending) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }
