package session

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callQueue calls a log handler or observers in a goroutine of its own, one call after the other.
// They belong to the user. They may block, and may call Close. So only Close waits for them, and
// only for an instant. T is the argument of a call: the queue has it by value, so that a call costs
// no memory of its own.
type callQueue[T any] struct {
	call func(T)
	// linger is how long the goroutine waits for further calls when it has made all. Then one start
	// of a goroutine, which wakes another processor, serves the calls of all this time.
	linger time.Duration
	wake   chan struct{} // capacity 1: the goroutine must not wait any longer; nil if linger is 0

	pending tasks

	mu      sync.Mutex
	queue   []T
	taken   int  // so many at the front of the queue were taken out
	running bool // a goroutine makes the calls

	isFlushed bool // the goroutine lingers no more
}

// maxQueuedCalls bounds the queue while a call blocks. callQueue drops further calls.
const maxQueuedCalls = 1000

// maxIdleQueue is how long the array is that a queue without calls keeps.
const maxIdleQueue = maxQueuedCalls / 4

// add adds a call, and does not block. It reports whether there was room for it.
func (q *callQueue[T]) add(argument T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch len(q.queue) - q.taken {
	case 0:
		q.queue, q.taken = q.queue[:0], 0
	case maxQueuedCalls:
		return false
	}
	if q.taken >= maxQueuedCalls {
		q.queue, q.taken = slices.Delete(q.queue, 0, q.taken), 0
	}
	q.pending.add()
	q.queue = append(q.queue, argument)
	switch {
	case !q.running:
		q.running = true
		go q.run()
	case len(q.queue)-q.taken == maxQueuedCalls/4: // more may follow soon
		q.wakeUp()
	}
	return true
}

// isEmpty reports whether no call waits. One may be running.
func (q *callQueue[T]) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) == q.taken
}

func (q *callQueue[T]) run() {
	finished := false
	defer func() {
		if !finished { // a call has ended the goroutine
			go q.run()
		}
	}()
	for lingered := false; ; {
		switch argument, found, mayLinger := q.next(lingered); {
		case found:
			q.callWith(argument)
			lingered = false
		case mayLinger:
			lingered = true
			select {
			case <-time.After(q.linger):
			case <-q.wake:
			}
		default:
			finished = true
			return
		}
	}
}

func (q *callQueue[T]) callWith(argument T) {
	defer q.pending.done()
	q.call(argument)
}

// next takes the first call. If there is none, it reports whether the goroutine may linger.
// Otherwise the goroutine must end. lingered says that it has just done so.
func (q *callQueue[T]) next(lingered bool) (first T, found, mayLinger bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var none T
	if len(q.queue) == q.taken {
		q.running = !lingered && q.linger > 0 && !q.isFlushed
		if !q.running && cap(q.queue) > maxIdleQueue {
			q.queue, q.taken = nil, 0
		}
		return none, false, q.running
	}
	first, q.queue[q.taken] = q.queue[q.taken], none
	q.taken++
	return first, true, false
}

// wakeUp ends the waiting of the goroutine, if it waits.
func (q *callQueue[T]) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// flush blocks until all calls have returned, but only for an instant. A handler that waits for
// Close, or for a reader that has gone, does not return before Close does.
func (q *callQueue[T]) flush() {
	const instant = 100 * time.Millisecond
	q.mu.Lock()
	q.isFlushed = true
	q.wakeUp()
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), instant)
	defer cancel()
	_ = q.pending.wait(ctx)
}
