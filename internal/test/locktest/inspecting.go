package locktest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lock"
)

// inspecting has the promises about Inspect, for locks that have it.
func inspecting(s Subject) []property {
	if s.Inspect == nil {
		return nil
	}
	all := []property{
		{"inspection shows the holder, from any client", func(f *fixture) {
			p := f.process(Options{Lease: far, Poll: far, Description: "the night job"})
			h := p.lock()
			for _, from := range []*process{p, f.process(patient)} {
				info := from.inspect()
				require.True(f, info.Held())
				require.Equal(f, h.ID(), info.Holder)
				require.Equal(f, "the night job", info.Description)
				require.Equal(f, h.Fence(), info.Fence)
				require.Equal(f, 1, info.Holds)
				require.Positive(f, info.Remaining)
				require.LessOrEqual(f, info.Remaining, far)
				require.False(f, info.Since.IsZero())
			}
			p.unlock(h)
		}},
		{"inspection shows a free lock, and its last fence", func(f *fixture) {
			p := f.process(patient)
			info := p.inspect()
			require.False(f, info.Held())
			require.Zero(f, info.Fence)
			h := p.lock()
			p.unlock(h)
			info = p.inspect()
			require.False(f, info.Held())
			require.Zero(f, info.Holds)
			require.Equal(f, h.Fence(), info.Fence)
			require.True(f, info.Since.IsZero())
		}},
		{"inspection changes nothing", func(f *fixture) {
			p := f.process(patient)
			h := p.lock()
			f.unchanged(func() { p.inspect() })
			p.unlock(h)
		}},
	}
	if s.Reentrant {
		all = append(all, property{"inspection counts the holds", func(f *fixture) {
			p := f.process(patient)
			ctx := newChain()
			var holds []Hold
			for n := range 3 {
				holds = append(holds, p.lockWith(ctx))
				require.Equal(f, n+1, p.inspect().Holds)
			}
			for n, h := range holds {
				p.unlock(h)
				require.Equal(f, 2-n, p.inspect().Holds)
			}
		}})
	}
	return all
}

func (p *process) inspect() lock.Info {
	p.f.Helper()
	info, err := p.f.subject.Inspect(context.Background(), p.client, p.f.name)
	require.NoError(p.f, err)
	return info
}
