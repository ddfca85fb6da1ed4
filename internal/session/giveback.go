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

// GiveBack releases, in the background, what unanswered attempts may have been granted. It releases
// immediately, and once more when none of the attempts can be granted any more: each was answered
// after all, or is void. The second release is necessary because the first may overtake an attempt
// on another connection. So a grant that nobody waits for lives a round trip longer. If nothing is
// answered, it lives about as long as its command was valid, and not as long as a lease.
//
// release must tolerate that there is nothing to release. GiveBack calls it until it succeeds, for
// as long as there may be something to release. That time ends when stands has passed after strays,
// because a grant stands for that long if nobody keeps it. GiveBack ends early if the go-redis
// client was closed.
//
// A client that closes waits a moment more for GiveBack. The second release uses at most half of
// that moment to wait. A grant that is made later is left to its lease.
func (s *Session) GiveBack(inFlight InFlight, stands time.Duration, release func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(s.tasks.context())
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(moment, cancel) })
	s.tasks.add()
	go s.giveBack(&giveBack{
		ctx: ctx, release: release, strays: inFlight, end: time.Now().Add(max(0, time.Until(inFlight.until)) + stands),
		done: func() { stop(); cancel(); s.tasks.done() },
	})
}

// moment is how long a client that closes waits for its releases.
const moment = 2 * time.Second

// giveBack is one grant to release.
type giveBack struct {
	ctx     context.Context // ends a moment after the client begins to close
	done    func()
	release func(ctx context.Context) error
	strays  InFlight  // the second release comes after them; zero: no second release
	end     time.Time // nothing is left to release then
}

// giveBack makes one attempt to release. If it fails, it joins the backlog.
func (s *Session) giveBack(g *giveBack) {
	flying := g.strays.pending() // before the release is sent
	err := g.release(g.ctx)
	answered := err == nil
	switch {
	case answered && len(flying) > 0:
		s.whenLanded(g, flying)
	case answered, errors.Is(err, lockerr.ErrClosed), g.ctx.Err() != nil, time.Now().After(g.end):
		g.done()
	default:
		s.unanswered.add(g, s.giveBack)
	}
}

// whenLanded waits, without a goroutine, until it is time for the second release.
func (s *Session) whenLanded(g *giveBack, flying []context.Context) {
	g.strays = InFlight{}
	var begun atomic.Bool // not sync.Once: a second caller has nothing to wait for
	again := func() {
		if begun.CompareAndSwap(false, true) {
			s.giveBack(g)
		}
	}
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(moment/2, again) })
	afterAll(flying, func() { stop(); again() })
}

// until returns how long it takes until the server's clock has passed t. The guess of that clock
// runs late. So when the guess has passed t, the clock has too.
func (s *Session) until(t lua.Time) time.Duration {
	const slack = 5 * time.Millisecond
	d := time.Duration(t-s.Now())*time.Microsecond + slack
	return min(max(d, 0), maxInFlight)
}

// maxInFlight bounds the wait if the guess is wrong because the server's clock was set.
const maxInFlight = 2 * time.Minute

// backlog contains the releases that failed. A few workers retry them in turn, so that an outage
// does not cost a goroutine for each call that failed in it. The first attempt is not made here. So
// a release that is answered immediately, for instance by another node of a cluster, does not wait
// behind those that are not.
type backlog struct {
	mu      sync.Mutex
	queue   []*giveBack
	workers int
}

func (b *backlog) add(g *giveBack, try func(*giveBack)) {
	const atOnce = 8
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, g)
	if b.workers < atOnce {
		b.workers++
		go b.work(try)
	}
}

func (b *backlog) work(try func(*giveBack)) {
	for g := b.next(); g != nil; g = b.next() {
		try(g)
	}
}

// next takes the first of the queue. If the queue is empty, it returns nil, and the worker ends.
func (b *backlog) next() *giveBack {
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
