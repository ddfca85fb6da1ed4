//go:build unix

package history

import "golang.org/x/sys/unix"

// Monotonic is CLOCK_MONOTONIC, which all processes of a host share. A process cannot pass on Go's
// own reading of that clock.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error())
	}
	return t.Nano()
}
