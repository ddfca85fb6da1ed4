package session

import (
	"log/slog"
	"sync"
	"time"
)

// leakReporter reports holds whose handles became garbage. A program that forgets one often forgets
// thousands. So the first few of a second are reported one by one, and the others together.
type leakReporter struct {
	mu    sync.Mutex
	n     int         // since the timer was started
	timer *time.Timer // nil: the last second was quiet
}

const maxLeakLogs = 10

// ReportLeak reports one hold, with what is known of it. It reports nothing if the client closes,
// because the client releases the hold then.
func (s *Session) ReportLeak(becomes string, attrs ...any) {
	if s.IsClosing() {
		return
	}
	if s.leaks.count(s.Log) <= maxLeakLogs {
		s.Log.Error("redlatch: a hold was dropped without Unlock; "+becomes, attrs...)
	}
}

// count counts another hold, and returns the number of holds in this second.
func (d *leakReporter) count(log *slog.Logger) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Second, func() { d.flush(log) })
	}
	d.n++
	return d.n
}

// flush reports how many holds were not reported one by one.
func (d *leakReporter) flush(log *slog.Logger) {
	if more := d.reset() - maxLeakLogs; more > 0 {
		log.Error("redlatch: more holds were dropped without Unlock within a second", slog.Int("holds", more))
	}
}

// reset begins a new second, and returns the number of holds in the last one.
func (d *leakReporter) reset() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	n := d.n
	d.n, d.timer = 0, nil
	return n
}
