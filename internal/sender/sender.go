package sender

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config configures a sender.
type Config struct {
	// Redis sends one command, and returns when go-redis does.
	Redis interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}
	// Pipeline makes a pipeline. If it is nil, each command is sent alone.
	Pipeline Pipeline
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
	cfg Config

	mu           sync.Mutex
	queue        []*command // no worker has taken them yet
	workerComing bool       // callWorker started or woke a worker, which has not taken commands yet
	sending      []*worker  // send a pipeline, for less than slowAfter
	idle         []*worker  // the last one was busy most recently
	direct       bool       // a caller sends in its own goroutine
	slowTimerSet bool       // uncountSlow will run
	closed       bool
}

// New makes a sender. It does no I/O and starts no goroutine.
func New(cfg Config) *Sender { return &Sender{cfg: cfg} }

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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.callWorker()
}

// callWorker starts or wakes a worker if commands wait and a worker may send. Only one worker
// starts at a time. When it runs, it takes all commands that have arrived until then. The caller
// holds mu.
func (s *Sender) callWorker() {
	switch {
	case len(s.queue) == 0, s.workerComing:
		return
	case s.cfg.Pipeline != nil && len(s.sending) >= sendingAtOnce:
		if !s.slowTimerSet {
			s.slowTimerSet = true
			time.AfterFunc(slowAfter, s.uncountSlow)
		}
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
	w := &worker{sender: s, wake: make(chan struct{}, 1)}
	go w.work()
}

// uncountSlow removes workers from sending that have waited for an answer for slowAfter. They go
// on, but another worker may send.
func (s *Sender) uncountSlow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowTimerSet = false
	s.sending = slices.DeleteFunc(s.sending, func(w *worker) bool { return time.Since(w.began) >= slowAfter })
	s.callWorker()
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
	most := 1
	if s.cfg.Pipeline != nil {
		most = largestBatch
	}
	w.batch = s.next(w.batch[:0], most)
	s.sending = slices.DeleteFunc(s.sending, func(other *worker) bool { return other == w })
	if len(w.batch) > 0 {
		if s.cfg.Pipeline != nil { // sending limits only pipelines
			w.began = time.Now()
			s.sending = append(s.sending, w)
		}
		s.callWorker()
		return true
	}
	if s.closed {
		close(w.wake)
	} else {
		s.idle = append(s.idle, w)
	}
	return false
}

// next moves up to most commands from the front of the queue to batch, and returns batch. It skips
// commands for which dropUnsent returns true.
func (s *Sender) next(batch []*command, most int) []*command {
	for len(batch) < most && len(s.queue) > 0 {
		c := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if !c.dropUnsent() {
			batch = append(batch, c)
		}
	}
	return batch
}

// endIdle ends a worker that waited for idleFor. If callWorker woke the worker meanwhile, the
// worker goes on.
func (s *Sender) endIdle(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.idle, w); at >= 0 {
		s.idle = slices.Delete(s.idle, at, at+1)
		close(w.wake)
	}
}

// workerExited removes a worker whose goroutine ends. A hook of go-redis may have ended it while it
// was sending.
func (s *Sender) workerExited(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = slices.DeleteFunc(s.sending, func(other *worker) bool { return other == w })
	s.callWorker()
}

// ErrGoexit is the error of a command that did not return. A hook of go-redis ended the goroutine
// with runtime.Goexit, as FailNow of a test does.
var ErrGoexit = errors.New("the command did not return")

// beginDirect reports whether a caller may send in its own goroutine. It may if no other caller
// does, no command waits, and no pipeline counts in sending. Otherwise the command goes out with
// others, which costs less. If beginDirect returns true, the caller must call endDirect.
func (s *Sender) beginDirect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct || len(s.queue) > 0 || len(s.sending) > 0 {
		return false
	}
	s.direct = true
	return true
}

func (s *Sender) endDirect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct = false
}

// sendOne sends one command, and blocks until go-redis returns. It returns a panic as an error.
func (s *Sender) sendOne(ctx context.Context, cmd redis.Cmder) (err error) {
	defer s.recovered(&err)
	return s.cfg.Redis.Process(ctx, cmd)
}

// recovered turns a panic into *err. It must be deferred.
func (s *Sender) recovered(err *error) {
	if p := recover(); p != nil {
		*err = s.cfg.Panicked(p)
	}
}
