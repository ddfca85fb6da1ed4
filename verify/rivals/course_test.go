package rivals_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/workload"
)

// scale is how much the tests do. The settings of the libraries are the same in both scales, except
// for the time after which go-redis gives up on a reply.
type scale struct {
	lease       time.Duration
	readTimeout time.Duration // 0: go-redis' default, 5 s
	waitLimit   time.Duration // of a waiter
	part        int           // percent of each row's n
	together    bool          // cells run side by side, because nobody reads the times
}

var (
	tiny = scale{lease: time.Second, readTimeout: 300 * time.Millisecond, waitLimit: 4 * time.Second, part: 6, together: true}
	full = scale{lease: 2 * time.Second, waitLimit: 20 * time.Second, part: 100}
)

// of is the part of n for the scale.
func (s scale) of(n int) int { return max(1, n*s.part/100) }

// row is one situation for all libraries.
type row struct {
	name string
	run  func(c *course)
}

// course is one library in one row. Its methods may be called concurrently.
type course struct {
	*testing.T
	lib    library
	size   scale
	server *redistest.Server

	mu     sync.Mutex
	trials int
	counts []count
	bites  []count
	times  []series
	notes  []string
}

type count struct {
	what string
	n    int
}

type series struct {
	what string
	of   []time.Duration
}

// cell is the result of a course.
type cell struct{ n, result, bites string }

func add(to *[]count, what string, n int) {
	if i := slices.IndexFunc(*to, func(c count) bool { return c.what == what }); i >= 0 {
		(*to)[i].n += n
		return
	}
	*to = append(*to, count{what, n})
}

// count adds to a number that the table shows.
func (c *course) count(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.counts, what, n)
}

// bit adds to the count of a fault, which is how often the fault really happened.
func (c *course) bit(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.bites, what, n)
}

// took adds to times whose median and maximum the table shows.
func (c *course) took(what string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.times, func(s series) bool { return s.what == what }); i >= 0 {
		c.times[i].of = append(c.times[i].of, d)
		return
	}
	c.times = append(c.times, series{what, []time.Duration{d}})
}

// note says, once, what a library does not have.
func (c *course) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// unless shows note if the library does not have what a row needs.
func (c *course) unless(has bool, note string) {
	if !has {
		c.note(note)
	}
}

func (c *course) cell() cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts, bites []string
	for _, k := range c.counts {
		parts = append(parts, fmt.Sprintf("%d %s", k.n, k.what))
	}
	for _, s := range c.times {
		slices.Sort(s.of)
		parts = append(parts, fmt.Sprintf("%s: median %s, longest %s (%d)", s.what, short(s.of[len(s.of)/2]), short(s.of[len(s.of)-1]), len(s.of)))
	}
	invalid := len(c.bites) == 0
	for _, k := range c.bites {
		invalid = invalid || k.n == 0
		bites = append(bites, fmt.Sprintf("%d %s", k.n, k.what))
	}
	result := strings.Join(append(parts, c.notes...), "; ")
	if invalid || c.Failed() {
		result = "INVALID: " + result
	}
	return cell{n: fmt.Sprint(c.trials), result: result, bites: strings.Join(bites, ", ")}
}

func short(d time.Duration) string {
	if d.Abs() < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// each runs n trials, with together of them at a time.
func (c *course) each(n, together int, trial func()) { c.inGroups(n, 1, together, trial) }

// inGroups runs n trials in groups of size, with together groups at a time.
func (c *course) inGroups(n, size, together int, group func()) {
	groups := c.size.of(n / size)
	c.trials = groups * size
	work := make(chan struct{})
	var g sync.WaitGroup
	for range min(groups, together) {
		g.Go(func() {
			for range work {
				group()
			}
		})
	}
	for range groups {
		work <- struct{}{}
	}
	close(work)
	g.Wait()
}

// party is a client of the library behind a proxy of its own.
type party struct {
	client
	proxy *redistest.Proxy
}

// party makes a party whose connection is open, and whose scripts are loaded.
func (c *course) party() *party {
	p := redistest.NewProxy(c.T, c.server.Addr())
	cl := c.lib.open(c.T, p.Addr(), c.size)
	c.Cleanup(cl.close)
	c.cycle(cl, redistest.Name(c))
	return &party{client: cl, proxy: p}
}

// cycle takes a lock and releases it.
func (c *course) cycle(cl client, name string) {
	c.unlock(c.take(cl, name))
}

// take locks while there is no fault. It retries, because it only prepares a row. Rows test what
// happens to a single request.
func (c *course) take(cl client, name string) workload.Hold {
	var err error
	for range 6 {
		h, e := lockWithin(cl.lock(name), 5*time.Second)
		if err = e; err == nil {
			return h
		}
	}
	c.Errorf("%s: lock without any fault: %v", c.lib.name, err)
	return nobody{}
}

func lockWithin(l workload.Lock, most time.Duration) (workload.Hold, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return l.Lock(ctx)
}

// nobody is the hold of a client that could not lock. The course has failed by then.
type nobody struct{}

func (nobody) ID() string                   { return "" }
func (nobody) Fence() int64                 { return 0 }
func (nobody) Lost() <-chan struct{}        { return nil }
func (nobody) TrustedUntil() time.Time      { return time.Time{} }
func (nobody) Unlock(context.Context) error { return nil }

func (c *course) unlock(h workload.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.Unlock(ctx); err != nil {
		c.Errorf("%s: unlock without any fault: %v", c.lib.name, err)
	}
}

// remaining returns how much longer the server keeps the lock. The second result is false if it is
// free.
func (c *course) remaining(name string) (time.Duration, bool) {
	d, err := c.server.Control().PTTL(context.Background(), c.lib.key(name)).Result()
	if err != nil {
		c.Errorf("asking for %s: %v", name, err)
	}
	return d, d > 0
}

// free waits until the lock is free, but at most a lease and a little. It returns how long that
// took.
func (c *course) free(name string) (after time.Duration, freed bool) {
	began := time.Now()
	for time.Since(began) < c.size.lease+2*time.Second {
		if _, held := c.remaining(name); !held {
			return time.Since(began), true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began), false
}

// content is the data of a lock in Redis, without its lease.
func (c *course) content(name string) string {
	text, _ := c.server.Control().Dump(context.Background(), c.lib.key(name)).Result()
	return text
}

// commands returns the commands with which a library takes and releases a lock, as seen on the
// wire. It needs no knowledge of the scripts of a library, so nothing can get out of date.
func (c *course) commands() (acquire, release func([]string) bool) {
	p := c.party()
	name := redistest.Name(c)
	p.proxy.Record()
	c.cycle(p.client, name)
	var seen [][]string
	for _, cmd := range p.proxy.Recorded() {
		if redistest.Containing(name)(cmd) {
			seen = append(seen, cmd)
		}
	}
	require.GreaterOrEqual(c, len(seen), 2, "one to take it, one to give it back")
	return like(seen[0]), like(seen[len(seen)-1])
}

// like matches a command, or a script, by its name.
func like(cmd []string) func([]string) bool {
	if redistest.Command("EVALSHA")(cmd) {
		return func(other []string) bool {
			return redistest.Command("EVALSHA")(other) && len(other) > 1 && other[1] == cmd[1]
		}
	}
	return redistest.Command(cmd[0])
}
