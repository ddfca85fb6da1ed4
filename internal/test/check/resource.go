package check

import (
	"context"
	"errors"
	"sync"
)

// Resource is the thing that a lock protects: a counter that holders read and write back. A checked
// resource checks the fence of every read and write. It refuses a fence that is lower than the
// highest it has seen.
type Resource interface {
	// Read returns the counter, or ErrStale.
	Read(ctx context.Context, fence int64) (int64, error)
	// Write sets the counter. If it did not, it returns ErrStale.
	Write(ctx context.Context, fence, value int64) error
	// Audit returns what happened to the resource.
	Audit(ctx context.Context) (Audit, error)
}

// ErrStale says that the fence was lower than the highest one seen.
var ErrStale = errors.New("stale fence")

// Audit says what happened to a resource.
type Audit struct {
	Value    int64 // of the counter
	Accepted int64 // writes
	Rejected int64 // reads and writes with a stale fence
	Stale    int64 // writes with a stale fence that were accepted
}

// Lost is the number of updates that others overwrote, because they had read before these updates.
func (a Audit) Lost() int64 { return a.Accepted - a.Value }

// Increment reads the counter, calls think, and writes the counter plus one. It goes wrong if two
// clients do it at the same time.
func Increment(ctx context.Context, r Resource, fence int64, think func()) error {
	v, err := r.Read(ctx, fence)
	if err != nil {
		return err
	}
	think()
	return r.Write(ctx, fence, v+1)
}

// Memory is a resource in one process.
type Memory struct {
	checked bool

	mu      sync.Mutex
	highest int64
	audit   Audit
}

// NewMemory returns a new resource. checked says whether it checks fences.
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
