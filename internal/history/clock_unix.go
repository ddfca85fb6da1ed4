//go:build unix

package history

import "golang.org/x/sys/unix"

// Monotonic is CLOCK_MONOTONIC, which all processes of a host share; Go's own
// reading of it cannot leave a process.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("history: CLOCK_MONOTONIC: " + err.Error())
	}
	return t.Nano()
}
