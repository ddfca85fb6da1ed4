package locktest

import (
	"context"

	"github.com/stretchr/testify/require"
)

// fencing has the promises about fences, for locks that have fences.
func fencing(s Subject) []property {
	if s.Anonymous {
		return nil
	}
	return growing
}

var growing = []property{
	{"every fresh grant has a larger fence", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		fence := int64(0)
		for range 5 {
			for _, process := range []*process{p, q} {
				fence = f.fenceAbove(fence, process)
			}
		}
	}},
	{"fences grow when Redis has forgotten them", func(f *fixture) {
		p := f.process(patient)
		fence := f.fenceAbove(0, p)
		for range 3 {
			f.wipe()
			fence = f.fenceAbove(fence, p)
		}
	}},
	{"a lost hold keeps its fence, and the next has a larger one", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		fence := h.Fence()
		f.wipe()
		next := q.lock()
		require.Greater(f, next.Fence(), fence)
		f.lost(h.Unlock(context.Background()), h)
		require.Equal(f, fence, h.Fence())
		q.unlock(next)
	}},
	{"a lock handed on inside a client has a larger fence", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		waiter := p.behindHolder(context.Background()).sleeps()
		p.unlock(h)
		next := waiter.got()
		require.Greater(f, next.Fence(), h.Fence())
		require.NotEqual(f, h.ID(), next.ID())
		p.unlock(next)
	}},
}

// fenceAbove locks and unlocks. It asserts that the fence is larger than the given one, and returns
// it.
func (f *fixture) fenceAbove(fence int64, p *process) int64 {
	f.Helper()
	h := p.lock()
	require.Greater(f, h.Fence(), fence)
	p.unlock(h)
	return h.Fence()
}
