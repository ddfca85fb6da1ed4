package session

import (
	"log/slog"
	"sync"
	"time"
)

// dropped reports holds whose handles became garbage. A program that forgets one
// often forgets thousands: the first few of a second are reported one by one, the
// others together.
type dropped struct {
	mu    sync.Mutex
	n     int         // since the timer was started
	timer *time.Timer // nil: the last second was quiet
}

const droppedOneByOne = 10

// Dropped reports one hold, with what is known of it. One that the client releases,
// because it closes, was not forgotten.
func (s *Session) Dropped(becomes string, attrs ...any) {
	if s.IsClosing() {
		return
	}
	if s.dropped.count(s.Log) <= droppedOneByOne {
		s.Log.Error("redlatch: a hold was dropped without Unlock; "+becomes, attrs...)
	}
}

// count counts one more, and returns how many there are.
func (d *dropped) count(log *slog.Logger) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Second, func() { d.flush(log) })
	}
	d.n++
	return d.n
}

// flush reports those that were not reported one by one.
func (d *dropped) flush(log *slog.Logger) {
	if more := d.reset() - droppedOneByOne; more > 0 {
		log.Error("redlatch: more holds were dropped without Unlock within a second", slog.Int("holds", more))
	}
}

// reset begins a new second, and returns how many the last one had.
func (d *dropped) reset() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	n := d.n
	d.n, d.timer = 0, nil
	return n
}
