package session

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callQueue calls a log handler or observers in a goroutine of its own, one call after the other. They
// belong to the user. They may block, and may call Close. So only Close waits for them, and only for
// an instant. T is the argument of a call: the queue has it by value, so that a call costs no memory of
// its own.
type callQueue[T any] struct {
	call func(T)
	// linger is how long the goroutine waits for further calls when it has made all. Then one start of a
	// goroutine, which wakes another processor, serves the calls of all this time.
	linger time.Duration
	wake   chan struct{} // capacity 1: the goroutine must not wait any longer; nil if linger is 0

	pending tasks

	mu      sync.Mutex
	queue   []T
	taken   int  // so many at the front of the queue were taken out
	running bool // a goroutine makes the calls

	isFlushed bool
}

// maxQueuedCalls bounds the queue while a call blocks. callQueue drops further calls.
const maxQueuedCalls = 1000

// maxIdleQueue is how long the array is that a queue without calls keeps.
const maxIdleQueue = maxQueuedCalls / 4

// add adds a call, and does not block. It reports whether there was room for it.
func (l *callQueue[T]) add(argument T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch len(l.queue) - l.taken {
	case 0:
		l.queue, l.taken = l.queue[:0], 0
	case maxQueuedCalls:
		return false
	}
	if l.taken >= maxQueuedCalls {
		l.queue, l.taken = slices.Delete(l.queue, 0, l.taken), 0
	}
	l.pending.add()
	l.queue = append(l.queue, argument)
	switch {
	case !l.running:
		l.running = true
		go l.run()
	case len(l.queue)-l.taken == maxQueuedCalls/4: // more may follow soon
		l.wakeUp()
	}
	return true
}

// isEmpty reports whether no call waits. One may be running.
func (l *callQueue[T]) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == l.taken
}

func (l *callQueue[T]) run() {
	finished := false
	defer func() {
		if !finished { // a call has ended the goroutine
			go l.run()
		}
	}()
	for lingered := false; ; {
		switch argument, found, mayLinger := l.next(lingered); {
		case found:
			l.callWith(argument)
			lingered = false
		case mayLinger:
			lingered = true
			select {
			case <-time.After(l.linger):
			case <-l.wake:
			}
		default:
			finished = true
			return
		}
	}
}

func (l *callQueue[T]) callWith(argument T) {
	defer l.pending.done()
	l.call(argument)
}

// next takes the first call. If there is none, it reports whether the goroutine may linger. Otherwise the
// goroutine must end. lingered says that it has just done so.
func (l *callQueue[T]) next(lingered bool) (first T, found, mayLinger bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	if len(l.queue) == l.taken {
		l.running = !lingered && l.linger > 0 && !l.isFlushed
		if !l.running && cap(l.queue) > maxIdleQueue {
			l.queue, l.taken = nil, 0
		}
		return none, false, l.running
	}
	first, l.queue[l.taken] = l.queue[l.taken], none
	l.taken++
	return first, true, false
}

// endLinger ends the waiting of the goroutine, for good.
func (l *callQueue[T]) endLinger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isFlushed = true
	l.wakeUp()
}

// wakeUp ends the waiting of the goroutine, if it waits.
func (l *callQueue[T]) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// flush blocks until all calls have returned, but only for an instant. A handler that waits for
// Close, or for a reader that has gone, does not return before Close does.
func (l *callQueue[T]) flush() {
	const instant = 100 * time.Millisecond
	l.endLinger()
	ctx, cancel := context.WithTimeout(context.Background(), instant)
	defer cancel()
	_ = l.pending.wait(ctx)
}
