package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Embedded runs miniredis on a TCP port until the test ends, with keys that
// expire by the clock: miniredis by itself only expires them when told to.
// It is not Redis: see Each.
func Embedded(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatalf("redistest: embedded server: %v", err)
	}
	t.Cleanup(m.Close)
	return m
}
