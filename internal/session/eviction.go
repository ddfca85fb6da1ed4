package session

import (
	"context"
	"log/slog"
	"time"
)

// checkEviction logs, once for each client, that Redis may evict locks. It does not block, and asks
// only after the first renewal that Redis answered. So a client that holds no lock for that long
// sends nothing, and a server in trouble is not asked. A failed check is not repeated: the client
// may lack the permission.
func (s *Session) checkEviction() {
	if s.FindEviction == nil || s.evictionChecked.Load() || !s.evictionChecked.CompareAndSwap(false, true) {
		return
	}
	s.abandonedAttempts.add() // FinishClose waits for it, but only for a moment
	go func() {
		defer s.abandonedAttempts.done()
		defer func() { _ = recover() }() // of a hook of go-redis, which the next command meets too
		ctx, cancel := context.WithTimeout(s.closing, 2*time.Second)
		defer cancel()
		if addr, policy := s.FindEviction(ctx); policy != "" {
			s.Write(slog.LevelWarn, "redlatch: redis may evict locks when its memory is full; set maxmemory-policy noeviction",
				slog.String("server", addr), slog.String("maxmemory_policy", policy))
		}
	}()
}
