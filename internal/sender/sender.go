package sender

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// Config configures a sender.
type Config struct {
	// Redis sends one command, and returns when go-redis does.
	Redis interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}
	// Direct says that go-redis obeys the deadline of a context while it waits for an answer.
	// Callers then may send by themselves.
	Direct bool
	// Pipeline makes a pipeline. If it is nil, each command is sent alone.
	Pipeline Pipeline
	// Master returns the client of the server of a key. If it is nil, no Attempt may have a Wait.
	Master node.Master
	// Panicked returns an error for a panic in go-redis or in one of its hooks.
	Panicked func(p any) error
}

// Pipeline makes a pipeline. The method of a go-redis client is one.
type Pipeline = func() redis.Pipeliner

const (
	// sendingAtOnce is how many workers may send pipelines at the same time. More pipelines would
	// contain fewer commands each, and cost more system calls.
	sendingAtOnce = 4
	// slowAfter is how long a worker is one of these. If it gets no answer by then, another worker
	// may send. So dead connections do not delay other commands for longer.
	slowAfter = 5 * time.Millisecond
	// largestBatch bounds the commands of one pipeline, which keep one connection busy.
	largestBatch = 128
	// idleFor is how long a worker waits for another command before it ends.
	idleFor = 100 * time.Millisecond
)

// Sender sends the commands of one client. Its methods may be called concurrently.
type Sender struct {
	cfg     Config
	signals sync.Pool // of chan struct{}, for command.settled

	mu           sync.Mutex
	queue        []*command // no worker has taken them yet
	workerComing bool       // callWorker started or woke a worker, which has not taken commands yet
	busy         []*worker  // send, or wait for answers
	prompt       int        // how many of busy are not slow
	idle         []*worker  // the last one was busy most recently
	closed       bool

	direct direct

	// One timer serves all commands and workers. Most commands are answered long before it fires,
	// and then cost no timer at all.
	timer  *time.Timer
	tickAt time.Time // when the timer fires; zero: it does not
}

// New makes a sender. It does no I/O and starts no goroutine.
func New(cfg Config) *Sender {
	return &Sender{cfg: cfg, signals: sync.Pool{New: func() any { return make(chan struct{}, 1) }}}
}

// Close ends the workers that wait for commands. It does not block. The sender still sends commands
// after Close, but its workers then do not wait for more.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.idle {
		close(w.wake)
	}
	s.idle = nil
}

// enqueue puts a command into the queue for a worker. It does not block.
func (s *Sender) enqueue(c *command) {
	c.settled = s.signals.Get().(chan struct{}) //nolint:forcetypeassert // the pool has only such channels
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.tickBy(c.leaveAt)
	s.callWorker()
}

// callWorker starts or wakes a worker if commands wait and a worker may send. Only one worker
// starts at a time. When it runs, it takes all commands that have arrived until then. The caller
// holds mu.
func (s *Sender) callWorker() {
	switch {
	case len(s.queue) == 0, s.workerComing:
		return
	case s.isFull():
		s.tickBy(s.firstSlow())
		return
	}
	s.workerComing = true
	if last := len(s.idle) - 1; last >= 0 {
		w := s.idle[last]
		s.idle[last] = nil
		s.idle = s.idle[:last]
		w.wake <- struct{}{}
		return
	}
	w := &worker{sender: s, wake: make(chan struct{}, 1), index: notBusy}
	go w.work()
}

// isFull reports whether sendingAtOnce workers are busy and not slow. Another one must then wait.
func (s *Sender) isFull() bool { return s.cfg.Pipeline != nil && s.prompt >= sendingAtOnce }

// firstSlow returns when the first of the busy workers becomes slow.
func (s *Sender) firstSlow() time.Time {
	var first time.Time
	for _, w := range s.busy {
		if at := w.since.Add(slowAfter); !w.slow && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// tickBy makes the timer fire at a time, or before. The caller holds mu.
func (s *Sender) tickBy(at time.Time) {
	if !s.tickAt.IsZero() && !at.Before(s.tickAt) {
		return
	}
	s.tickAt = at
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(at), s.tick)
	} else {
		s.timer.Reset(time.Until(at))
	}
}

// tick does what is due: it makes callers leave whose commands are overdue, makes room for other
// workers than the slow ones, and ends workers that have been idle for long.
func (s *Sender) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickAt = time.Time{}
	now := time.Now()
	var waiting overdue
	waiting.leave(s.queue, now)
	for _, w := range s.busy {
		waiting.leave(w.batch, now)
		if !w.slow && now.Sub(w.since) >= slowAfter {
			w.slow = true
			s.prompt--
		}
	}
	s.direct.tick(&waiting, now)
	if waiting.count > 0 {
		s.tickBy(waiting.next(now))
	}
	s.callWorker()
	for len(s.idle) > 0 && now.Sub(s.idle[0].since) >= idleFor {
		close(s.idle[0].wake)
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	if len(s.idle) > 0 {
		s.tickBy(s.idle[0].since.Add(idleFor))
	}
}

// overdue makes callers leave whose time is over, and counts the others.
type overdue struct {
	count int
	first time.Time // the earliest time at which one of the others must leave
}

func (o *overdue) leave(commands []*command, now time.Time) {
	for _, c := range commands {
		if c.leaveOverdue(now); c.isWaiting() {
			o.await(c.leaveAt)
		}
	}
}

func (o *overdue) await(at time.Time) {
	if o.count == 0 || at.Before(o.first) {
		o.first = at
	}
	o.count++
}

// next returns when to look again. To look at one command takes well under a microsecond, so this
// costs a small part of the time, however many commands wait.
func (o *overdue) next(now time.Time) time.Time {
	if least := now.Add(time.Duration(o.count) * time.Microsecond); o.first.Before(least) {
		return least
	}
	return o.first
}

// take moves the next commands from the queue into w.batch. called says that callWorker started or
// woke this worker. If there is nothing to send, take makes the worker idle and returns false. If
// the sender is closed, the worker must end then.
func (s *Sender) take(w *worker, called bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if called {
		s.workerComing = false
	}
	if w.index != notBusy && !w.waits() {
		s.direct.measure(time.Since(w.since))
	}
	s.removeBusy(w)
	most := 1
	if s.cfg.Pipeline != nil {
		most = largestBatch
	}
	clear(w.batch)
	w.batch, w.since = s.next(w.batch[:0], most), time.Now()
	if len(w.batch) > 0 {
		s.addBusy(w)
		s.callWorker()
		return true
	}
	if s.closed {
		close(w.wake)
	} else {
		s.idle = append(s.idle, w)
		s.tickBy(w.since.Add(idleFor))
	}
	return false
}

// next moves up to most commands from the front of the queue to batch, and returns batch. It skips
// commands for which dropUnsent returns true. A command with a Wait goes alone, because others
// would wait for the replicas too.
func (s *Sender) next(batch []*command, most int) []*command {
	taken := 0
	for ; len(batch) < most && taken < len(s.queue); taken++ {
		c := s.queue[taken]
		if c.wait != nil && len(batch) > 0 {
			break
		}
		if c.dropUnsent() {
			continue
		}
		batch = append(batch, c)
		if c.wait != nil {
			most = 1
		}
	}
	const kept = 8 * largestBatch
	if s.queue = slices.Delete(s.queue, 0, taken); len(s.queue) == 0 && cap(s.queue) > kept {
		s.queue = nil // it grew in a burst
	}
	return batch
}

func (s *Sender) addBusy(w *worker) {
	w.index, w.slow = len(s.busy), w.waits() // for replicas, which is no reason for others to wait
	s.busy = append(s.busy, w)
	if !w.slow {
		s.prompt++
	}
}

func (s *Sender) removeBusy(w *worker) {
	if w.index == notBusy {
		return
	}
	last := len(s.busy) - 1
	s.busy[w.index] = s.busy[last]
	s.busy[w.index].index = w.index
	s.busy[last] = nil
	s.busy = s.busy[:last]
	if !w.slow {
		s.prompt--
	}
	w.index = notBusy
}

// ErrGoexit is the error of a command that did not return. A hook of go-redis ended the goroutine
// with runtime.Goexit, as FailNow of a test does.
var ErrGoexit = errors.New("the command did not return")

// sendOne sends one command, and blocks until go-redis returns. It returns a panic as an error.
func (s *Sender) sendOne(c *command) (err error) {
	defer s.recovered(&err)
	if c.wait != nil {
		return s.sendAndWait(c)
	}
	return s.cfg.Redis.Process(c, c.cmd)
}

// recovered turns a panic into *err. It must be deferred.
func (s *Sender) recovered(err *error) {
	if p := recover(); p != nil {
		s.mu.Lock()
		s.direct.never = true // a hook that panics may leave go-redis with a lock that stays locked
		s.mu.Unlock()
		*err = s.cfg.Panicked(p)
	}
}
