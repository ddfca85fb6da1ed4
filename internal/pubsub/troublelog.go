package pubsub

import (
	"context"
	"log/slog"
)

// cause is a kind of trouble.
type cause string

const (
	unreachable cause = "no pub/sub connection; waiters poll"
	refused     cause = "pub/sub refused; waiters of the channel poll"
	deaf        cause = "the pub/sub connection gets no messages, although it answers; another one takes its place"
)

type entry struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// troubleLog logs each cause once in the hub's life, and its end once. A fault that comes and goes
// for hours is for metrics, and not for a log that others have to read. Entries are added under
// Hub.mu and written outside of it, because a log handler may do I/O.
type troubleLog struct {
	begun, over map[cause]bool
	entries     []entry
	writing     bool // a goroutine writes them
}

func newTroubleLog() troubleLog {
	return troubleLog{begun: map[cause]bool{}, over: map[cause]bool{}}
}

func (l *troubleLog) trouble(c cause, attrs ...slog.Attr) {
	if l.begun[c] {
		return
	}
	l.begun[c] = true
	l.entries = append(l.entries, entry{slog.LevelWarn, "redlatch: " + string(c), attrs})
}

func (l *troubleLog) recovered(c cause, attrs ...slog.Attr) {
	if l.over[c] || !l.begun[c] {
		return
	}
	l.over[c] = true
	l.entries = append(l.entries, entry{slog.LevelInfo, "redlatch: over: " + string(c), attrs})
}

// writeLog writes the entries in a goroutine of its own, so that a log handler that blocks delays
// no wake-up.
func (h *Hub) writeLog() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.log.entries) > 0 && !h.log.writing {
		h.log.writing = true
		h.done.Go(h.write)
	}
}

func (h *Hub) write() {
	for entries := h.noted(); entries != nil; entries = h.noted() {
		for _, e := range entries {
			h.cfg.Log.LogAttrs(context.Background(), e.level, e.text, e.attrs...)
		}
	}
}

// noted takes the entries. If there are none, the writer ends.
func (h *Hub) noted() []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := h.log.entries
	h.log.entries = nil
	h.log.writing = entries != nil
	return entries
}
