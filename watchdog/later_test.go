package watchdog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A call comes within a second, whenever the next renewal is due, and in the order of Later.
func TestLaterCallsWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		var calls []string
		add := func(text string) bool { return w.Later(func() { calls = append(calls, text) }) }
		require.False(t, add("there is no lease"))
		s := spec("a", nil)
		s.Lease, s.Interval = time.Hour, time.Hour/3
		l := w.Watch(s)
		sleep(10 * time.Second)
		require.True(t, add("a"))
		require.True(t, add("b"))
		l.Stop(t.Context())
		sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, calls)
		require.False(t, add("there is no lease any more"))
		w.Watch(spec("b", nil))
		w.Close()
		require.False(t, add("closed"))
		sleep(time.Minute)
		require.Len(t, calls, 2)
	})
}

// A call may use the watchdog.
func TestLaterHoldsNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, _ *fake) {
		l := w.Watch(spec("a", nil))
		require.True(t, w.Later(func() {
			l.StopRenewing()
			l.Stop(t.Context())
		}))
		sleep(2 * time.Second)
		require.Zero(t, w.Len())
	})
}
