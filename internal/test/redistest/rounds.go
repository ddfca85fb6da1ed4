package redistest

import "os"

// Rounds returns how many rounds a test runs: all of them in make verify, and few otherwise. Use it
// if a few rounds cover the code, and more rounds only find faults that depend on rare timing.
func Rounds(few, all int) int {
	if full() {
		return all
	}
	return few
}

// full reports whether make verify runs the test. It sets REDLATCH_FULL.
func full() bool { return os.Getenv("REDLATCH_FULL") == "1" }
