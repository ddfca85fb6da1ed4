package redlatch_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// workerEnv makes the test binary run one of workers instead of the tests. Some things happen only
// to whole processes, such as being stopped and killed.
const workerEnv = "REDLATCH_TEST_WORKER"

// workers are the tasks of a process that a test has started. Each exchanges lines with the test
// over stdin and stdout, and ends when stdin does, so that none outlives its test.
var workers = map[string]func() error{}

func TestMain(m *testing.M) {
	name, worker := os.LookupEnv(workerEnv)
	if !worker {
		redistest.Main(m)
	}
	run, known := workers[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s=%s: no such worker\n", workerEnv, name)
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
