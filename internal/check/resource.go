package check

import (
	"context"
	"errors"
	"sync"
)

// Resource is what a lock protects: a counter that holders read and write back.
// One that is checked looks at the fence of every read and write, and refuses
// those below the highest it has seen.
type Resource interface {
	// Read returns the counter, or ErrStale.
	Read(ctx context.Context, fence int64) (int64, error)
	// Write sets the counter. ErrStale if it did not.
	Write(ctx context.Context, fence, value int64) error
	// Audit returns what became of it.
	Audit(ctx context.Context) (Audit, error)
}

// ErrStale says that the fence was below the highest one seen.
var ErrStale = errors.New("stale fence")

// Audit is what became of a resource.
type Audit struct {
	Value    int64 // of the counter
	Accepted int64 // writes
	Rejected int64 // reads and writes with a stale fence
	Stale    int64 // writes with a stale fence that were accepted
}

// Lost is how many updates were overwritten by others who had read before them.
func (a Audit) Lost() int64 { return a.Accepted - a.Value }

// Increment reads, thinks, and writes back: what goes wrong when two do it at
// one time.
func Increment(ctx context.Context, r Resource, fence int64, think func()) error {
	v, err := r.Read(ctx, fence)
	if err != nil {
		return err
	}
	think()
	return r.Write(ctx, fence, v+1)
}

// Memory is a resource of one process.
type Memory struct {
	checked bool

	mu      sync.Mutex
	highest int64
	audit   Audit
}

// NewMemory makes a resource that looks at fences, or one that does not.
func NewMemory(checked bool) *Memory { return &Memory{checked: checked} }

// Read implements Resource.
func (m *Memory) Read(_ context.Context, fence int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.see(fence); err != nil {
		return 0, err
	}
	return m.audit.Value, nil
}

// Write implements Resource.
func (m *Memory) Write(_ context.Context, fence, value int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stale, err := m.see(fence)
	if err != nil {
		return err
	}
	if stale {
		m.audit.Stale++
	}
	m.audit.Accepted++
	m.audit.Value = value
	return nil
}

func (m *Memory) see(fence int64) (stale bool, err error) {
	stale = fence < m.highest
	m.highest = max(m.highest, fence)
	if stale && m.checked {
		m.audit.Rejected++
		return true, ErrStale
	}
	return stale, nil
}

// Audit implements Resource.
func (m *Memory) Audit(context.Context) (Audit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.audit, nil
}
