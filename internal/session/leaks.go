package session

import (
	"log/slog"
	"sync"
	"time"
)

// leakReporter logs holds whose handles became garbage without Unlock. A program that forgets one
// hold often forgets thousands. So the first few of a second get a line each, and the others share
// one.
type leakReporter struct {
	mu    sync.Mutex
	n     int         // since the timer was started
	timer *time.Timer // nil: no second has begun
}

const maxLeakLogs = 10

// ReportLeak logs one such hold. text says what happened to it. attrs describe it. If the client
// closes, ReportLeak logs nothing, because the client releases the hold then.
func (s *Session) ReportLeak(text string, attrs ...any) {
	if s.IsClosing() {
		return
	}
	if s.leaks.count(s.Log) <= maxLeakLogs {
		s.Log.Error("redlatch: "+text, attrs...)
	}
}

// count counts another hold, and returns the number of holds in this second.
func (r *leakReporter) count(log *slog.Logger) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Second, func() { r.flush(log) })
	}
	r.n++
	return r.n
}

// flush ends the second, and logs how many of its holds got no line of their own, if any.
func (r *leakReporter) flush(log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := r.n - maxLeakLogs; more > 0 {
		log.Error("redlatch: more holds or permits were dropped without Unlock or Release within a second", slog.Int("holds", more))
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.n, r.timer = 0, nil
}
