//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/check"
	"github.com/redlatch/redlatch/internal/test/history"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// processRows: workers that are real processes are stopped for longer than their lease, or killed,
// at any point of their work.
func (p primitive) processRows() []row {
	const wild = ", with observers that block, panic and exit"
	killed := func(c *course) { c.processes(p, "killed", (*campaign).kill, 0, false) }
	killedBesideObservers := func(c *course) { c.processes(p, "killed", (*campaign).kill, 0, true) }
	if !p.fenced() {
		const target = "never more than the limit, and what ends comes back once; ≥ 200 "
		return []row{{
			name: p.name + ": processes stopped", target: target + "stopped",
			run: func(c *course) { c.processes(p, "stopped", (*campaign).stop, 0, false) },
		}, {
			name: p.name + ": processes killed", target: target + "killed",
			run: killed,
		}, {
			name: p.name + ": processes killed" + wild, target: target + "killed",
			run: killedBesideObservers,
		}}
	}
	const target = "0 overlaps, fences grow, linearizable; 0 stale writes accepted with fence check, ≥ 200 "
	return []row{{
		name: p.name + ": processes stopped", target: target + "rejected",
		run: func(c *course) { c.processes(p, "stopped", (*campaign).stop, c.of(200, 1), false) },
	}, {
		name: p.name + ": processes killed", target: target + "killed",
		run: killed,
	}, {
		name: p.name + ": processes killed" + wild, target: target + "killed",
		run: killedBesideObservers,
	}}
}

const workerLease = 400 * time.Millisecond

// campaign is a few processes that work on a few locks, and what happened to them.
type campaign struct {
	*course
	server, resources *redistest.Server
	p                 primitive
	names             []string
	proxy             *redistest.Proxy
	dir               string

	mu      sync.Mutex
	workers []*worker
	clients int
	blows   []blow
	wild    bool           // the workers have observers that misbehave
	met     map[string]int // what the workers did when a blow hit them, with the number of blows
}

// processes runs campaigns until there was enough of everything. Each campaign has lock names of
// its own. If wild is set, the observers of the workers misbehave.
func (c *course) processes(p primitive, what string, strike func(*campaign, int), rejected int, wild bool) {
	k := c.campaign(p)
	k.wild = wild
	const workers = 5 // porcupine's limit is six at one time
	struck, refused := 0, 0
	for round := 0; struck < c.of(200, 5) || refused < rejected || !k.metAll() && round < 20; round++ {
		k.names, k.blows = nil, nil
		for _, letter := range "abc" {
			k.names = append(k.names, fmt.Sprintf("%s %d %c", what, round, letter))
		}
		for range workers {
			k.start()
		}
		var g sync.WaitGroup
		for i := range workers {
			g.Go(func() {
				for range 3 {
					time.Sleep(workerLease/2 + rand.N(workerLease))
					strike(k, i)
				}
			})
		}
		g.Wait()
		h := k.finish()
		struck += len(k.blows)
		refused += k.judge(h, what)
	}
	c.enough("processes "+what, struck, c.of(200, 5))
	if wild {
		k.countMisbehaviour()
	}
	if rejected > 0 {
		c.enough("stale writes rejected", refused, rejected)
	}
}

func (c *course) campaign(p primitive) *campaign {
	c.Helper()
	k := &campaign{course: c, p: p, server: redistest.Start(c.T), resources: redistest.Start(c.T), dir: c.TempDir(), met: map[string]int{}}
	k.proxy = redistest.NewProxy(c.T, k.server.Addr())
	// Releases take a while, so that blows meet them. Half of them take a while before Redis runs
	// them.
	k.proxy.Inject(redistest.Rule{Match: some(.5, gives), Action: redistest.DelayRequest(workerLease / 8)})
	k.proxy.Inject(redistest.Rule{Match: gives, Action: redistest.DelayReply(workerLease / 8)})
	return k
}

// start adds a worker. It takes the place of a dead worker, if there is one.
func (k *campaign) start() {
	k.Helper()
	k.mu.Lock()
	k.clients++
	client := k.clients
	k.mu.Unlock()
	w := k.worker(plan{
		Do: "work", Primitive: k.p.name, URL: "redis://" + k.proxy.Addr(), Names: k.names, Lease: workerLease,
		Client: client, File: filepath.Join(k.dir, fmt.Sprintf("%d.jsonl", client)), Resources: k.resources.Addr(),
		Wild: k.wild,
	})
	w.await("working")
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, old := range k.workers {
		if old.reaped {
			k.workers[i] = w
			return
		}
	}
	k.workers = append(k.workers, w)
}

func (k *campaign) nth(i int) *worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers[i]
}

func (k *campaign) struck(w *worker, from int64, deadly bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blows = append(k.blows, blow{w.plan.Client, from, history.Monotonic(), deadly})
}

// stop stops a worker for longer than its lease can last.
func (k *campaign) stop(i int) {
	w, from := k.nth(i), history.Monotonic()
	w.signal(syscall.SIGSTOP)
	time.Sleep(workerLease + rand.N(workerLease))
	w.signal(syscall.SIGCONT)
	k.struck(w, from, false)
}

// kill ends a worker and starts another.
func (k *campaign) kill(i int) {
	w, from := k.nth(i), history.Monotonic()
	w.kill()
	k.struck(w, from, true)
	k.start()
}

// finish ends the workers. It returns what all of them did, also the killed ones.
func (k *campaign) finish() history.History {
	k.Helper()
	for _, w := range k.workers {
		w.end()
	}
	k.workers = nil
	var files []io.Reader
	paths, err := filepath.Glob(filepath.Join(k.dir, "*.jsonl"))
	require.NoError(k, err)
	for _, path := range paths {
		f, err := os.Open(path)
		require.NoError(k, err)
		defer f.Close()
		defer os.Remove(path)
		files = append(files, f)
	}
	h, err := history.Read(files...)
	require.NoError(k, err)
	return h
}

// judge runs all three checkers on the histories of all workers together. It returns how many stale
// writes the resource rejected.
func (k *campaign) judge(h history.History, what string) (rejected int) {
	for _, doing := range doings {
		n := met(h, k.blows, doing)
		k.met[doing] += n
		k.bit(what+" "+doing, n)
	}
	rdb := redis.NewClient(&redis.Options{Addr: k.resources.Addr()})
	defer rdb.Close()
	for name, part := range h.ByName() {
		k.count("grants", grants(part.Ops))
		k.never("overlaps", check.Overlaps(part.Windows, check.Limit(k.p.units())))
		if !k.p.fenced() {
			k.never("histories not linearizable", k.p.linearizable(withExpiry(check.Grants(part.Ops), k.blows)))
			continue
		}
		k.never("histories not linearizable", k.p.linearizable(withExpiry(withUnnotified(part.Ops, k.blows), k.blows)))
		k.never("fences gone back", check.Fences(part.Ops))
		for _, checked := range []bool{true, false} {
			audit, err := check.NewRemote(rdb, resourceKey(name, checked), checked).Audit(context.Background())
			require.NoError(k, err)
			if checked {
				k.forbid("stale writes accepted with fence check", int(audit.Stale))
				k.forbid("updates lost with fence check", int(audit.Lost()))
			} else {
				k.count("updates without fence check", int(audit.Accepted))
				k.count("of them lost", int(audit.Lost()))
			}
		}
	}
	n, _ := rdb.GetDel(context.Background(), rejections).Int()
	return n
}

func grants(ops []history.Op) (n int) {
	for _, op := range ops {
		if op.Kind == history.Acquire && op.Outcome == history.Done {
			n++
		}
	}
	return n
}

var doings = []string{"waiting", "holding", "unlocking"}

// metAll reports whether blows have hit workers at every point where they can.
func (k *campaign) metAll() bool {
	return !slices.ContainsFunc(doings, func(doing string) bool { return k.met[doing] == 0 })
}
