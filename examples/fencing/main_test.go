//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The example as a user runs it: the store rejects the write of the paused holder, and keeps that
// of the next holder.
func TestThePausedHolderIsRejected(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "run", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"process 2  writes: accepted",
		"process 2  unlocks: released",
		"process 1  writes: rejected: a later holder of the lock has written",
		"process 1  unlocks: too late: ",
		`the table has "written by process 2"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("missing %q in\n%s", want, out)
		}
	}
}
