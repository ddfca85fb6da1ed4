package sender

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is what a sender is made of.
type Config struct {
	// Redis sends one command and returns when it is answered.
	Redis interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}
	// Pipeline makes a pipeline; nil sends each command by itself.
	Pipeline Pipeline
	// Panicked makes an error of a panic in go-redis or in one of its hooks.
	Panicked func(p any) error
}

// Pipeline makes a pipeline, as the method of a go-redis client does.
type Pipeline = func() redis.Pipeliner

const (
	// sendingAtOnce is how many pipelines are on their way at once. More of them carry
	// fewer commands each, and cost more system calls.
	sendingAtOnce = 4
	// slowAfter is how long a pipeline counts as one of these. So a command waits no
	// longer than that for the answers to others, also where connections are dead.
	slowAfter = 5 * time.Millisecond
	// largestBatch bounds what one connection is busy with.
	largestBatch = 128
	// idleFor is how long a worker waits for another command before it ends.
	idleFor = 100 * time.Millisecond
)

// Sender sends the commands of one client. Its methods may be called concurrently.
type Sender struct {
	cfg Config

	mu           sync.Mutex
	queue        []*command // no worker has taken them yet
	workerComing bool       // a worker was started or woken for them
	sending      []*worker  // those that count, see sendingAtOnce
	idle         []*worker  // the last one was busy last
	direct       bool       // a caller sends by itself
	slowTimerSet bool       // look for slow workers soon
	closed       bool
}

// New makes a sender. It does no I/O and starts no goroutine.
func New(cfg Config) *Sender { return &Sender{cfg: cfg} }

// Close ends the workers that wait for commands. Commands may be sent after it.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.idle {
		close(w.wake)
	}
	s.idle = nil
}

// enqueue has a command sent.
func (s *Sender) enqueue(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.callWorker()
}

// callWorker sees to it that somebody takes what is in the queue. One worker comes at a
// time, so that it finds all that has arrived until it is there.
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

// uncountSlow stops counting workers that wait for an answer for long.
func (s *Sender) uncountSlow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slowTimerSet = false
	s.sending = slices.DeleteFunc(s.sending, func(w *worker) bool { return time.Since(w.began) >= slowAfter })
	s.callWorker()
}

// take gives the worker its next batch. It reports false when there is nothing to send,
// and the worker is idle.
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
		if s.cfg.Pipeline != nil { // else they are not counted
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

// next moves as many commands from the front of the queue to the batch, but for those that
// nobody waits for any more.
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

// endIdle ends a worker that was idle for long. One that was called meanwhile goes on.
func (s *Sender) endIdle(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.idle, w); at >= 0 {
		s.idle = slices.Delete(s.idle, at, at+1)
		close(w.wake)
	}
}

// workerExited forgets a worker whose goroutine a hook has ended.
func (s *Sender) workerExited(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = slices.DeleteFunc(s.sending, func(other *worker) bool { return other == w })
	s.callWorker()
}

// ErrGoexit is a command that did not return: a hook of go-redis ended its goroutine with
// runtime.Goexit, as FailNow of a test does.
var ErrGoexit = errors.New("the command did not return")

// beginDirect reports whether a caller may send by itself. It may when nobody else sends:
// commands of several callers go together, which costs less.
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

// sendOne sends one command.
func (s *Sender) sendOne(ctx context.Context, cmd redis.Cmder) (err error) {
	defer s.recovered(&err)
	return s.cfg.Redis.Process(ctx, cmd)
}

func (s *Sender) recovered(err *error) {
	if p := recover(); p != nil {
		*err = s.cfg.Panicked(p)
	}
}
