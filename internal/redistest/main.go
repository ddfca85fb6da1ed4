package redistest

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// Main is the body of TestMain: it runs the tests, ends the shared server and
// fails the run when goroutines remain. Options name those that are known to
// remain, each with the reason beside it. go-redis is kept from printing: it would
// tell of every fault, a hundred lines for each that a test is about.
func Main(m *testing.M, ignored ...goleak.Option) {
	logging.Disable()
	shared.hasMain.Store(true)
	code := m.Run()
	endShared()
	// After a failure leaks are to be expected and only hide what failed.
	if code == 0 {
		code = leaks(ignored)
	}
	os.Exit(code)
}

func leaks(ignored []goleak.Option) int {
	// The pool of a go-redis client that could not dial tries again by itself, and sees
	// only once a second that the client was closed.
	dials := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	if err := goleak.Find(append(ignored, dials)...); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: goroutines left behind:", err)
		return 1
	}
	return 0
}
