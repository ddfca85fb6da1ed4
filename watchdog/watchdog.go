package watchdog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// batchSize is the default of Config.BatchSize.
	batchSize = 100
	// callsPrompt bounds the calls in flight on one server, without those that turned out slow. It
	// is enough to use a few connections, and too few to exhaust a pool.
	callsPrompt = 8
	// callsPerBucket bounds the calls in flight for one bucket, so that one that hangs leaves
	// places to the others.
	callsPerBucket = 4
	// slow is when a call no longer counts as prompt and gives its place to another. If a server
	// hangs, so do the calls of all its groups, and none of them keeps a place for longer.
	slow = 100 * time.Millisecond
	// timeoutMin is the least time for a call while trust lasts.
	timeoutMin = 10 * time.Millisecond
	// grace is how long after the end of its context a call may take to return, before it is given
	// up.
	grace = 10 * time.Millisecond
	// clockInterval is how often the loop compares the clocks while leases exist.
	clockInterval = time.Second
	// jump is the least step of the wall clock that counts: below it is slewing.
	jump = int64(10 * time.Millisecond)
	// coalesce is the part of an interval that a lease may be asked for early.
	coalesce = 10
)

// Config says how to renew.
type Config struct {
	Renew Renew
	// Server returns the name of the server that answers for a slot. Each server has calls of its
	// own, so one that hangs delays none of the others. Server must not block. nil: there is one
	// server.
	Server func(slot int) string
	// Logger reports when renewals begin to fail and when they work again. nil: no log.
	Logger *slog.Logger
	// BatchSize bounds the leases of one call. A larger size means fewer calls, each of which keeps
	// the
	// server busy for longer. Defaults to 100.
	BatchSize int
}

// Watchdog keeps leases alive and notifies of their ends. Its methods may be called from any
// goroutine. Make it with [New].
type Watchdog struct {
	cfg  Config
	base time.Time
	wall func(time.Time) int64 // seam for tests; else wallClock

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // the loop, the calls and what Later was given, not OnLost
	wake   chan struct{}  // notifies the loop that something is due earlier

	mu          sync.Mutex // never held while calling out or waiting
	closed      bool
	running     bool // the loop
	leases      int
	added       bool       // a lease was added since the last pass
	wakeAt      int64      // what the loop sleeps for
	sweepAt     int64      // when to drop empty buckets next
	offset      int64      // wall clock less monotonic, as last noticed
	back        int64      // sum of the steps back of the wall clock
	steps       []stepBack // the last few
	lastReading int64      // when the clocks were read last
	buckets     map[bucketKey]*bucket
	byDue       heap[*bucket] // by what is due first in each
	servers     map[string]*server
	calls       map[*call]struct{}
	later       []func() // for the next pass
}

// New makes a watchdog. It starts no goroutine before the first Watch. It
// panics without a Renew function.
func New(cfg Config) *Watchdog {
	if cfg.Renew == nil {
		panic("watchdog: New without Renew")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.BatchSize <= 0 {
		cfg.BatchSize = batchSize
	}
	w := &Watchdog{
		cfg:     cfg,
		servers: make(map[string]*server),
		base:    time.Now(),
		wall:    wallClock,
		wake:    make(chan struct{}, 1),
		wakeAt:  never,
		buckets: make(map[bucketKey]*bucket),
		calls:   make(map[*call]struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.offset = w.wall(w.base)
	return w
}

// Close ends renewal. It ends the context of calls in flight and waits for them and for the loop,
// but for 10 ms only. A Renew that ignores its context is left behind, as it also is in normal
// operation. Close does not report leases as lost, then or later: they run out on the server,
// unless they are released. It does not wait for an OnLost that was already called, so OnLost may
// call Close. A second Close is allowed.
func (w *Watchdog) Close() {
	w.mu.Lock()
	w.closed = true
	for _, b := range w.buckets {
		for len(b.leases) > 0 {
			l := b.leases[len(b.leases)-1].of
			w.drop(l)
			l.state = stopped
		}
	}
	w.mu.Unlock()
	w.cancel()
	returned := make(chan struct{})
	go func() {
		w.work.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(grace):
	}
}

// Later calls f within a second, in another goroutine, and reports whether it will. It will not if
// there are no leases, or after Close. If Close comes first, f may not be called.
//
// Later does not block, and wakes no goroutine. So a clean-up of the garbage collector may call it.
// The goroutine of a clean-up must not touch the channels and timers of a bubble of
// testing/synctest.
func (w *Watchdog) Later(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases == 0 { // also after Close
		return false
	}
	w.later = append(w.later, f)
	return true
}

// runLater calls what Later was given.
func (w *Watchdog) runLater() {
	calls := w.later
	if len(calls) == 0 {
		return
	}
	w.later = nil
	w.work.Go(func() {
		for _, f := range calls {
			f()
		}
	})
}

// Len returns the number of leases watched: neither stopped nor lost.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases
}

// Watch watches a lease until Stop, its loss, or Close. It does not block and does no I/O. If the
// trust of the lease is already over, the lease is lost immediately. After Close the watchdog
// neither renews the lease nor calls OnLost; its trust still ends. Watch panics if Interval is not
// positive.
func (w *Watchdog) Watch(s Spec) *Lease {
	if s.Interval <= 0 {
		panic("watchdog: Watch without a positive Interval")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.at(s.Sent)
	l := &Lease{
		w: w, key: s.Key, id: s.ID,
		lease: s.Lease, margin: s.Margin, renew: s.Renew, onLost: s.OnLost,
		trust:   sent.add(s.Lease - s.Margin),
		next:    instantAfter(sent.mono, firstDelay(s.Interval)),
		maxHold: never,

		extendedAt: sent.mono,
	}
	if s.MaxHold > 0 {
		l.maxHold = instantAfter(sent.mono, s.MaxHold)
	}
	if w.closed {
		l.state = stopped
		return l
	}
	l.renewByWallClock(w.offset) // the clocks may have parted since Sent
	w.add(l, bucketKey{s.Group, s.Interval})
	return l
}

// add takes l into its bucket and wakes the loop if l is due before all else.
func (w *Watchdog) add(l *Lease, key bucketKey) {
	b := w.buckets[key]
	if b == nil {
		b = &bucket{bucketKey: key}
		w.buckets[key] = b
		w.byDue.push(never, b)
	}
	l.bucket = b
	b.leases.push(l.due(), l)
	w.leases++
	w.added = true
	w.reorder(b)
	if !w.running {
		w.running = true
		w.work.Go(w.loop)
		return
	}
	w.wakeLoop(b.leases.first())
}

// drop takes l out of its bucket. It does not wake the loop. If the loop sleeps for a stale
// instant, it then finds nothing and sleeps again.
func (w *Watchdog) drop(l *Lease) {
	l.bucket.leases.remove(int(l.index))
	w.leases--
	w.reorder(l.bucket)
}

// replace moves l to where it belongs by what is due.
func (w *Watchdog) replace(l *Lease) {
	l.bucket.leases.fix(int(l.index), l.due())
	w.reorder(l.bucket)
}

// reorder moves b to where it belongs by what is due first in it.
func (w *Watchdog) reorder(b *bucket) {
	if first := b.leases.first(); w.byDue[b.index].at != first {
		w.byDue.fix(b.index, first)
	}
}

// wakeLoop wakes the loop if it sleeps for longer than until at.
func (w *Watchdog) wakeLoop(at int64) {
	if at >= w.wakeAt {
		return
	}
	w.wakeAt = at
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is pending already, and the loop looks at everything
	}
}
