package locktest

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var exclusion = []property{
	{"excludes while hammered by Lock", func(f *fixture) {
		f.hammer(func(p *process) (Hold, error) { return p.client.Lock(context.Background(), f.name) })
	}},
	{"excludes while hammered by TryLock", func(f *fixture) {
		f.hammer(func(p *process) (Hold, error) {
			for {
				h, err := p.tryLock(context.Background())
				if len(kinds(err)) == 0 || kinds(err)[0] != lockerr.ErrNotAcquired {
					return h, err
				}
				// With a pause, because an embedded server runs one command at a time. A loop
				// without a pause would keep it from all other tests.
				time.Sleep(time.Millisecond)
			}
		})
	}},
	{"excludes whoever has another context", func(f *fixture) {
		p := f.process(patient)
		h := p.lockWith(newChain())
		p.refused()
		f.process(patient).refused()
		p.unlock(h)
		f.process(patient).free()
	}},
	{"is free again after every Unlock", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		for range 3 {
			p.unlock(p.lock())
			q.unlock(q.lock())
		}
	}},
	{"has one state for all names that differ", func(f *fixture) {
		p := f.process(patient)
		h := p.lock()
		other, err := p.client.TryLock(context.Background(), f.name+"/other")
		require.NoError(f, err)
		p.unlock(other)
		p.unlock(h)
	}},
}

// hammer lets goroutines of several processes count on an unguarded counter. It asserts that nobody
// else is inside meanwhile, and that every fence is larger than the one before it.
func (f *fixture) hammer(acquire func(p *process) (Hold, error)) {
	const processes, goroutines, rounds = 3, 4, 10
	var (
		counter, fence int64 // guarded by the lock alone
		inside         atomic.Int32
	)
	round := func(p *process) bool {
		h, err := acquire(p)
		if !assert.NoError(f, err) {
			return false
		}
		ok := assert.True(f, inside.CompareAndSwap(0, 1), "somebody else is inside") &&
			assert.True(f, f.subject.Anonymous || h.Fence() > fence, "fences grow")
		was := counter
		runtime.Gosched() // gives other holders, if there are any, a chance to run
		counter, fence = was+1, h.Fence()
		inside.Store(0)
		return assert.NoError(f, h.Unlock(context.Background())) && ok
	}
	for range processes {
		p := f.process(Options{Lease: far, Poll: far})
		for range goroutines {
			f.users.Go(func() {
				for range rounds {
					if !round(p) {
						return
					}
				}
			})
		}
	}
	f.usersDone()
	require.EqualValues(f, processes*goroutines*rounds, counter)
}
