package mutex

import (
	"log/slog"
	"time"
)

// SelfDeadlockWarning logs the self-deadlock warning, once, for a long wait on a lock that this
// client has. Usually the program did not pass on the context of the hold. It then waits for
// itself, and would do so in silence. Each wait has one SelfDeadlockWarning, wherever in the client
// it waits.
type SelfDeadlockWarning struct {
	C       <-chan time.Time // fires when it is time to check
	timer   *time.Timer
	request *Request
}

// NewSelfDeadlockWarning returns the self-deadlock warning of a wait that has not begun.
func (r *Request) NewSelfDeadlockWarning() *SelfDeadlockWarning {
	return &SelfDeadlockWarning{request: r}
}

// Start starts the timer, if it was not started before.
func (s *SelfDeadlockWarning) Start() {
	if after := s.request.Settings.SelfDeadlockAfter; s.timer == nil && after > 0 {
		s.timer = time.NewTimer(after)
		s.C = s.timer.C
	}
}

// Check is called when C fires. It logs the warning. If this client does not hold the lock now, it
// restarts the timer instead.
func (s *SelfDeadlockWarning) Check() {
	holder := s.request.State.Holder()
	if holder == nil {
		s.timer.Reset(s.request.Settings.SelfDeadlockAfter)
		return
	}
	hint := "if the holder waits for this call, pass on the context of its hold: Hold.Context, or the one that Do gives"
	if s.request.Owner.IsSibling(holder.Owner) {
		hint = "both calls got the same context; " + hint
	}
	s.request.Session().Write(slog.LevelWarn, "redlatch: a long wait for a lock that this client itself holds",
		slog.String("hint", hint), slog.String("lock", s.request.Name), slog.Duration("waited", s.request.Settings.SelfDeadlockAfter),
		slog.String("waiting_at", s.request.CallSite.String()), slog.String("held_since", holder.OldestCallSite().String()))
}

// Stop stops the timer.
func (s *SelfDeadlockWarning) Stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}
