package redistest

import "os"

// Rounds returns how often a test repeats what it does: all in make verify, which sets
// REDLATCH_FULL=1, and few everywhere else. It is for tests that show everything they can show with
// few rounds, and rare luck with all of them. make verify finds its tests by the calls of Rounds in test
// functions. So call it there, and not in a helper.
func Rounds(few, all int) int {
	if os.Getenv("REDLATCH_FULL") == "1" {
		return all
	}
	return few
}
