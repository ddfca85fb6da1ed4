package session

import (
	"context"
	"log/slog"
)

// logHandler passes lines to a callQueue, which alone calls Enabled and Handle of the next handler.
type logHandler struct {
	next  slog.Handler
	lines *callQueue
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
