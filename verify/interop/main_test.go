package interop_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// workerEnv makes the test binary hold a lock instead of running the tests, so that a test can kill
// a whole Go process.
const workerEnv = "REDLATCH_INTEROP_HOLDS"

func TestMain(m *testing.M) {
	if name, worker := os.LookupEnv(workerEnv); worker {
		if err := holdUntilKilled(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The shared Java process serves every test, and ends with this process.
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/redlatch/redlatch/verify/interop_test.(*jvm).read"))
}
