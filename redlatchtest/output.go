package redlatchtest

import (
	"sync"
	"testing"
)

// output writes log lines to the output of a test. Writing there after the test has ended would end
// the whole process, and a client may still have a line in its queue then.
type output struct {
	mu sync.Mutex
	t  testing.TB // nil when the test has ended
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.t == nil {
		return len(line), nil
	}
	return o.t.Output().Write(line)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.t = nil
}
