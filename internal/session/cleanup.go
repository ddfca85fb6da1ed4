package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/oneline"
	"github.com/redlatch/redlatch/lockerr"
)

// CleanUp releases, in the background, what attempts without an answer may have acquired. It does
// not block.
//
// CleanUp releases immediately, and once more when none of the attempts can take effect any more:
// each was answered after all, or is void. The second release is necessary because the first may
// overtake an attempt on another connection. So a grant that nobody waits for lasts a round trip
// longer. If no answer comes, it lasts about as long as its command was valid, which is less than a
// lease.
//
// release must tolerate that there is nothing to release. CleanUp calls it until it succeeds, for
// as long as there may be something to release. That time ends when grantLife has passed after the
// attempts in flight, because a grant lasts that long if nobody renews it. CleanUp ends early if
// the go-redis client was closed.
//
// After the client begins to close, CleanUp goes on for closeGrace. It waits at most half of that
// for the attempts in flight, and then makes the second release. A grant that Redis makes after
// that ends with its lease.
func (s *Session) CleanUp(inFlight InFlight, grantLife time.Duration, release func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(s.tasks.context())
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(closeGrace, cancel) })
	s.startCleanup(&cleanup{
		ctx: ctx, release: release, inFlight: inFlight, end: time.Now().Add(inFlight.remaining() + grantLife),
		done: func() { stop(); cancel(); s.tasks.done() },
	})
}

// RetryRelease goes on in the background with a release that failed with err. It is CleanUp for a
// lock that the client surely had. So FinishClose waits for it as long as it may, and returns the
// last error if the release never succeeds.
func (s *Session) RetryRelease(err error, inFlight InFlight, grantLife time.Duration, release func(ctx context.Context) error) {
	ctx := s.tasks.context()
	s.startCleanup(&cleanup{
		ctx: ctx, inFlight: inFlight, end: time.Now().Add(inFlight.remaining() + grantLife),
		release: func(ctx context.Context) error {
			last := release(ctx)
			if last == nil || ctx.Err() == nil { // otherwise it says only that FinishClose cannot wait any longer
				err = last
			}
			return last
		},
		done: func() {
			if err != nil && s.IsClosing() {
				s.unreleased.add(err)
			}
			s.tasks.done()
		},
	})
}

func (s *Session) startCleanup(g *cleanup) {
	s.tasks.add()
	go s.runCleanup(g)
}

// closeGrace is how long cleanups go on after the client began to close. FinishClose also waits at
// most this long for attempts that were left behind.
const closeGrace = 2 * time.Second

// cleanup is one grant or place to release.
type cleanup struct {
	ctx      context.Context // its end ends the cleanup
	done     func()          // called at the end
	release  func(ctx context.Context) error
	inFlight InFlight  // the second release comes after them; empty: there is no second release
	end      time.Time // there is nothing left to release after it
}

// runCleanup makes one attempt to release. If it fails, the cleanup goes into the cleanupQueue.
func (s *Session) runCleanup(g *cleanup) {
	pending := g.inFlight.pending() // before release, because an attempt may take effect meanwhile
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

// runAgainAfter starts the second release when all pending attempts have ended, or half of
// closeGrace after the client began to close. It does not block, and needs no goroutine until then.
func (s *Session) runAgainAfter(g *cleanup, pending []context.Context) {
	g.inFlight = InFlight{}
	var begun atomic.Bool // not sync.Once: its second caller would wait for the first
	again := func() {
		if begun.CompareAndSwap(false, true) {
			s.runCleanup(g)
		}
	}
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(closeGrace/2, again) })
	afterAll(pending, func() { stop(); again() })
}

// unreleased has the errors of the releases that failed while the client closed.
type unreleased struct {
	mu   sync.Mutex
	errs []error
}

func (u *unreleased) add(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.errs = append(u.errs, err)
}

func (u *unreleased) error() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return oneline.Errors(u.errs...)
}

// cleanupQueue contains the cleanups whose first attempt failed. A few workers retry them one after
// the other, so that an outage does not cost a goroutine for each failed call. The first attempt
// does not wait in this queue. So if Redis can answer it immediately, for instance on another node
// of a cluster, it does not wait behind others.
type cleanupQueue struct {
	mu      sync.Mutex
	queue   []*cleanup
	workers int
}

func (q *cleanupQueue) add(g *cleanup, try func(*cleanup)) {
	const atOnce = 8
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, g)
	if q.workers < atOnce {
		q.workers++
		go q.work(try)
	}
}

func (q *cleanupQueue) work(try func(*cleanup)) {
	for g := q.next(); g != nil; g = q.next() {
		try(g)
	}
}

// next takes the first cleanup. If there is none, it returns nil, and the worker ends.
func (q *cleanupQueue) next() *cleanup {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.workers--
		return nil
	}
	g := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	return g
}
