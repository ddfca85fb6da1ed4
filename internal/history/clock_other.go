//go:build !unix

package history

// Monotonic is not there: processes as workers need signals anyway.
func Monotonic() int64 { panic("history: no clock that processes share on this system") }
