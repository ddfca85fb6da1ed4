package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Embedded runs miniredis on a TCP port until the test ends. Its keys expire by the clock, while
// miniredis alone expires them only on request. It is not Redis; see Each.
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
