package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/lua"
)

// CleanUp releases, in the background, what unanswered attempts may have been granted. It releases
// immediately, and once more when none of the attempts can be granted any more: each was answered
// after all, or is void. The second release is necessary because the first may overtake an attempt
// on another connection. So a grant that nobody waits for lives a round trip longer. If nothing is
// answered, it lives about as long as its command was valid, and not as long as a lease.
//
// release must tolerate that there is nothing to release. CleanUp calls it until it succeeds, for
// as long as there may be something to release. That time ends when stands has passed after the
// commands in flight, because a grant stands for that long if nobody keeps it. CleanUp ends early
// if the go-redis client was closed.
//
// A client that closes waits a moment more for CleanUp. The second release uses at most half of
// that moment to wait. A grant that is made later is left to its lease.
func (s *Session) CleanUp(inFlight InFlight, stands time.Duration, release func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(s.tasks.context())
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(closeGrace, cancel) })
	s.tasks.add()
	go s.runCleanup(&cleanup{
		ctx: ctx, release: release, inFlight: inFlight, end: time.Now().Add(max(0, time.Until(inFlight.until)) + stands),
		done: func() { stop(); cancel(); s.tasks.done() },
	})
}

// closeGrace is how long a client that closes waits for its releases.
const closeGrace = 2 * time.Second

// cleanup is one grant to release.
type cleanup struct {
	ctx      context.Context // ends closeGrace after the client begins to close
	done     func()
	release  func(ctx context.Context) error
	inFlight InFlight  // the second release comes after them; zero: no second release
	end      time.Time // nothing is left to release then
}

// runCleanup makes one attempt to release. If it fails, it joins the backlog.
func (s *Session) runCleanup(g *cleanup) {
	pending := g.inFlight.pending() // before the release is sent
	err := g.release(g.ctx)
	answered := err == nil
	switch {
	case answered && len(pending) > 0:
		s.runAgainAfter(g, pending)
	case answered, errors.Is(err, lockerr.ErrClosed), g.ctx.Err() != nil, time.Now().After(g.end):
		g.done()
	default:
		s.cleanups.add(g, s.runCleanup)
	}
}

// runAgainAfter waits, without a goroutine, until it is time for the second release.
func (s *Session) runAgainAfter(g *cleanup, pending []context.Context) {
	g.inFlight = InFlight{}
	var begun atomic.Bool // not sync.Once: a second caller has nothing to wait for
	again := func() {
		if begun.CompareAndSwap(false, true) {
			s.runCleanup(g)
		}
	}
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(closeGrace/2, again) })
	afterAll(pending, func() { stop(); again() })
}

// timeUntil returns how long it takes until the server's clock has passed t. The guess of that
// clock runs late. So when the guess has passed t, the clock has too.
func (s *Session) timeUntil(t lua.Time) time.Duration {
	const slack = 5 * time.Millisecond
	d := time.Duration(t-s.Now())*time.Microsecond + slack
	return min(max(d, 0), maxInFlight)
}

// maxInFlight bounds the wait if the guess is wrong because the server's clock was set.
const maxInFlight = 2 * time.Minute

// cleanupQueue contains the releases that failed. A few workers retry them in turn, so that an
// outage does not cost a goroutine for each call that failed in it. The first attempt is not made
// here. So a release that is answered immediately, for instance by another node of a cluster, does
// not wait behind those that are not.
type cleanupQueue struct {
	mu      sync.Mutex
	queue   []*cleanup
	workers int
}

func (b *cleanupQueue) add(g *cleanup, try func(*cleanup)) {
	const atOnce = 8
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, g)
	if b.workers < atOnce {
		b.workers++
		go b.work(try)
	}
}

func (b *cleanupQueue) work(try func(*cleanup)) {
	for g := b.next(); g != nil; g = b.next() {
		try(g)
	}
}

// next takes the first of the queue. If the queue is empty, it returns nil, and the worker ends.
func (b *cleanupQueue) next() *cleanup {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.workers--
		return nil
	}
	g := b.queue[0]
	b.queue[0] = nil
	b.queue = b.queue[1:]
	return g
}
