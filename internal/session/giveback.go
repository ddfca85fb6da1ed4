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

// GiveBack releases, in the background, what an unanswered command may have been
// granted: at once, and once more when the command has been answered after all, or
// else when no copy of it can be granted any more. For a release may overtake what it
// is to undo, on another connection. A grant that nobody waits for so lives a round
// trip longer, and where nothing is answered about as long as its command was valid,
// not as long as a lease.
//
// release must tolerate that there is nothing to release. Until it succeeds it is
// called again, for as long as there may be something to release: until stands has passed
// after strays, which is how long what they got stands if nobody keeps it. With a go-redis
// client that was closed there is no way to.
//
// A client that closes gives it a moment more, of which the second release takes half
// at most to wait; what arrives after it is left to its lease.
func (s *Session) GiveBack(strays Strays, stands time.Duration, release func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(s.tasks.context())
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(moment, cancel) })
	s.tasks.enter()
	go s.giveBack(&giveBack{
		ctx: ctx, release: release, strays: strays, end: time.Now().Add(max(0, time.Until(strays.until)) + stands),
		done: func() { stop(); cancel(); s.tasks.done() },
	})
}

// moment is what a client that closes gives to what it has to give back.
const moment = 2 * time.Second

// giveBack is one grant to give back.
type giveBack struct {
	ctx     context.Context // ends a moment after the client begins to close
	done    func()
	release func(ctx context.Context) error
	strays  Strays    // the second release comes after them; none: there is none, or none more
	end     time.Time // nothing is left to release then
}

// giveBack tries once. What Redis does not answer joins the others that it does
// not answer.
func (s *Session) giveBack(g *giveBack) {
	flying := g.strays.flying() // before the release is sent
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

// whenLanded waits, without a goroutine, for the time of the second release.
func (s *Session) whenLanded(g *giveBack, flying []context.Context) {
	g.strays = Strays{}
	var begun atomic.Bool // and no sync.Once: the second to come has nothing to wait for
	again := func() {
		if begun.CompareAndSwap(false, true) {
			s.giveBack(g)
		}
	}
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(moment/2, again) })
	onceEnded(flying, func() { stop(); again() })
}

// until is how long it takes until the server's clock has passed t. The guess
// runs late, so when it has passed t, the server has.
func (s *Session) until(t lua.Time) time.Duration {
	const slack = 5 * time.Millisecond
	d := time.Duration(t-s.Now())*time.Microsecond + slack
	return min(max(d, 0), maxStray)
}

// maxStray bounds the wait when the guess of the server's clock is off because
// that clock was set.
const maxStray = 2 * time.Minute

// backlog is what Redis did not answer: tried again in turn, by a few at a time,
// so that an outage costs no goroutine for each call that failed in it. The
// first try is not made here: what is answered at once, by another node of a
// cluster for instance, does not wait behind what is not.
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

// next takes the first of the queue; when it is empty, nil, and the worker ends.
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
