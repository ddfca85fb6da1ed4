package session

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callQueue calls a log handler or observers in a goroutine of its own, one call after the other. They
// belong to the user. They may block, and may call Close. So only Close waits for them, and only for
// an instant.
type callQueue struct {
	pending tasks

	mu      sync.Mutex
	queue   []func()
	running bool // a goroutine makes the calls
}

// maxQueuedCalls bounds the queue while a call blocks. callQueue drops further calls.
const maxQueuedCalls = 1000

// add adds a call, and does not block. It reports whether there was room for it.
func (l *callQueue) add(call func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == maxQueuedCalls {
		return false
	}
	l.pending.add()
	l.queue = append(l.queue, call)
	if !l.running {
		l.running = true
		go l.run()
	}
	return true
}

// isEmpty reports whether no call waits. One may be running.
func (l *callQueue) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == 0
}

func (l *callQueue) run() {
	finished := false
	defer func() {
		if !finished { // a call has ended the goroutine
			go l.run()
		}
	}()
	for call := l.next(); call != nil; call = l.next() {
		l.make(call)
	}
	finished = true
}

func (l *callQueue) make(call func()) {
	defer l.pending.done()
	call()
}

// next takes the first call. If there is none, it returns nil, and the goroutine ends.
func (l *callQueue) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running = len(l.queue) > 0; !l.running {
		return nil
	}
	first := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	return first
}

// flush blocks until all calls have returned, but only for an instant. A handler that waits for
// Close, or for a reader that has gone, does not return before Close does.
func (l *callQueue) flush() {
	const instant = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), instant)
	defer cancel()
	_ = l.pending.wait(ctx)
}
