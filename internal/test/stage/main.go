package stage

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Main is the body of TestMain, in every package whose tests use this one. It is redistest.Main,
// except in a process that StartWorker has started: there it runs one of Workers instead of the
// tests.
func Main(m *testing.M) {
	name, worker := os.LookupEnv(workerEnv)
	if !worker {
		redistest.Main(m)
	}
	run, known := Workers[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s=%s: no such worker\n", workerEnv, name)
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
