package redistest

import "os"

// Rounds returns how many rounds a test runs: all of them in make verify, which sets REDLATCH_FULL=1, and few
// otherwise. Use it if a few rounds cover the code, and more rounds only find faults that depend on rare timing.
// scripts/sized-tests.sh looks for calls of Rounds, so call it directly in a test function of this module.
func Rounds(few, all int) int {
	if os.Getenv("REDLATCH_FULL") == "1" {
		return all
	}
	return few
}
