package session

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// logLines writes log lines in a goroutine of its own, one after the other. The handler belongs to
// the user. It may block, and it may call Close. So only Close waits for it, and only for an
// instant.
type logLines struct {
	unwritten tasks

	mu      sync.Mutex
	queue   []func()
	writing bool // a goroutine writes the queue
}

// maxLogLines bounds the queue while a handler blocks. logLines drops further lines.
const maxLogLines = 1000

func (l *logLines) add(write func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == maxLogLines {
		return
	}
	l.unwritten.add()
	l.queue = append(l.queue, write)
	if !l.writing {
		l.writing = true
		go l.write()
	}
}

func (l *logLines) write() {
	finished := false
	defer func() {
		if !finished { // a handler has ended the goroutine
			go l.write()
		}
	}()
	for write := l.next(); write != nil; write = l.next() {
		l.writeLine(write)
	}
	finished = true
}

func (l *logLines) writeLine(write func()) {
	defer l.unwritten.done()
	write()
}

// next takes the first line. If there is none, it returns nil, and the writer ends.
func (l *logLines) next() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing = len(l.queue) > 0; !l.writing {
		return nil
	}
	first := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	return first
}

// flush blocks until all lines are written, but only for an instant. A handler that waits for
// Close, or for a reader that has gone, does not return before Close does.
func (l *logLines) flush() {
	const instant = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), instant)
	defer cancel()
	_ = l.unwritten.wait(ctx)
}

// logHandler passes lines to logLines. Only logLines calls Enabled and Handle of the next handler.
type logHandler struct {
	next  slog.Handler
	lines *logLines
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.lines.add(func() {
		if h.next.Enabled(ctx, r.Level) {
			_ = h.next.Handle(ctx, r)
		}
	})
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.next.WithAttrs(attrs), h.lines}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.next.WithGroup(name), h.lines}
}
