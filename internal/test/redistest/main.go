package redistest

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// Main is the body of TestMain. It runs the tests, ends the shared server, and fails the run if
// goroutines are left. The options name goroutines that are known to be left, and the caller gives
// the reason for each. Main also stops go-redis from printing, because it would print a hundred
// lines for each fault of a test.
func Main(m *testing.M, ignored ...goleak.Option) {
	logging.Disable()
	shared.hasMain.Store(true)
	code := m.Run()
	endShared()
	// After a failure, leaks are normal, and would only hide the failure.
	if code == 0 {
		code = leaks(ignored)
	}
	os.Exit(code)
}

func leaks(ignored []goleak.Option) int {
	// The pool of a go-redis client that could not dial retries by itself. It checks only once a
	// second whether the client is closed.
	dials := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	if err := goleak.Find(append(ignored, dials)...); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: goroutines left behind:", err)
		return 1
	}
	return 0
}
