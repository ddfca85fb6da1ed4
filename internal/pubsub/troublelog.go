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

// troubleLog logs each cause once in the hub's life, and its end once. A fault that comes and goes
// for hours is for metrics, and not for a log that others have to read.
type troubleLog struct {
	log         *slog.Logger
	begun, over map[cause]bool
}

func newTroubleLog(log *slog.Logger) *troubleLog {
	return &troubleLog{log: log, begun: map[cause]bool{}, over: map[cause]bool{}}
}

func (l *troubleLog) trouble(c cause, attrs ...slog.Attr) {
	if !l.begun[c] {
		l.begun[c] = true
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "redlatch: "+string(c), attrs...)
	}
}

func (l *troubleLog) recovered(c cause, attrs ...slog.Attr) {
	if l.begun[c] && !l.over[c] {
		l.over[c] = true
		l.log.LogAttrs(context.Background(), slog.LevelInfo, "redlatch: over: "+string(c), attrs...)
	}
}
