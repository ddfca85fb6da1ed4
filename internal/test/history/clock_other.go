//go:build !unix

package history

// Monotonic does not exist here. Workers that are processes need signals anyway.
func Monotonic() int64 { panic("history: no clock that processes share on this system") }
