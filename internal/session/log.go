package session

import (
	"context"
	"log/slog"
)

// logHandler passes lines to a callQueue, which alone calls Enabled and Handle of the next handler.
type logHandler struct {
	next  slog.Handler
	lines *callQueue[logLine]
}

// logLine is in the queue for each line.
type logLine struct {
	ctx    context.Context //nolint:containedctx // that of the call which is still to be made
	next   slog.Handler
	record slog.Record
}

func (l logLine) write() {
	if l.next.Enabled(l.ctx, l.record.Level) {
		_ = l.next.Handle(l.ctx, l.record)
	}
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.lines.add(logLine{ctx, h.next, r})
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.next.WithAttrs(attrs), h.lines}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.next.WithGroup(name), h.lines}
}
