package redistest

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

var names atomic.Int64

// Name returns a name for a lock or key that nobody else uses. It contains the name of the test,
// and differs with each call and each process. It contains no braces, so that it has no hash tag by
// accident.
func Name(t interface{ Name() string }) string {
	test := strings.NewReplacer("{", "(", "}", ")", " ", "_").Replace(t.Name())
	return fmt.Sprintf("%s:%d.%d", test, os.Getpid(), names.Add(1))
}
