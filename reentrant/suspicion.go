package reentrant

import (
	"log/slog"
	"time"
)

// suspicion logs, once, a wait that has lasted long on a lock which this very
// client holds. The usual cause is a context without the owner: the program
// waits for itself, and would do so in silence.
type suspicion struct {
	C     <-chan time.Time // fires when it is time to check
	timer *time.Timer
	want  *want
}

// begin starts the wait, if it has not begun.
func (s *suspicion) begin(w *want) {
	if after := w.settings.Suspect; s.want == nil && after > 0 {
		s.timer = time.NewTimer(after)
		s.C = s.timer.C
	}
	s.want = w
}

// check is called when C fires. If the lock is not this client's now, it looks
// again later.
func (s *suspicion) check() {
	holder := s.want.l.holder()
	if holder == nil {
		s.timer.Reset(s.want.settings.Suspect)
		return
	}
	s.want.family.session.Log.Warn("redlatch: a long wait for a lock that this client itself holds; is a context with the owner missing?",
		slog.String("lock", s.want.keys.Lock), slog.Duration("waited", s.want.settings.Suspect),
		slog.String("waiting_at", s.want.site.String()), slog.String("held_since", holder.Site().String()))
}

func (s *suspicion) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}
