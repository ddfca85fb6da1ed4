package mutex

import (
	"log/slog"
	"time"
)

// Suspicion logs, once, a wait that has lasted long on a lock which this very
// client holds. The usual cause is that the program did not pass on the context of the
// hold: it waits for itself, and would do so in silence. One wait has one suspicion,
// wherever in the client it waits.
type Suspicion struct {
	C     <-chan time.Time // fires when it is time to check
	timer *time.Timer
	want  *Want
}

// Suspect returns the suspicion of a wait that has not begun.
func (w *Want) Suspect() *Suspicion { return &Suspicion{want: w} }

// Begin starts the wait, if it has not begun.
func (s *Suspicion) Begin() {
	if after := s.want.Settings.Suspect; s.timer == nil && after > 0 {
		s.timer = time.NewTimer(after)
		s.C = s.timer.C
	}
}

// Check is called when C fires. If the lock is not this client's now, it looks
// again later.
func (s *Suspicion) Check() {
	holder := s.want.Record.Holder()
	if holder == nil {
		s.timer.Reset(s.want.Settings.Suspect)
		return
	}
	hint := "if the holder waits for this call, pass on the context of its hold: Hold.Context, or the one that Do gives"
	if s.want.Owner.Sibling(holder.Owner) {
		hint = "both calls got the same context; " + hint
	}
	s.want.Session.Write(slog.LevelWarn, "redlatch: a long wait for a lock that this client itself holds",
		slog.String("hint", hint), slog.String("lock", s.want.Keys.Lock), slog.Duration("waited", s.want.Settings.Suspect),
		slog.String("waiting_at", s.want.Site.String()), slog.String("held_since", holder.Site().String()))
}

// Stop ends the wait.
func (s *Suspicion) Stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}
