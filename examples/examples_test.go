// Package examples runs the examples as a new user would, and checks their output.
package examples

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func run(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./"+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestQuickstartPrintsItsStory(t *testing.T) {
	out := run(t, "quickstart")
	require.Contains(t, out, "locks it again further down its call chain")
	require.Contains(t, out, "is killed with -9")
	require.Contains(t, out, "took over")
	require.Contains(t, out, "Done: ")
}

func TestNestedLocksThreeDeepUnderOneFence(t *testing.T) {
	out := run(t, "nested")
	require.Regexp(t, `checkout\s+holds 1, fence (\d+)`, out)
	require.Regexp(t, `reserve\s+holds 3`, out)
	require.Contains(t, out, "another owner waits in vain")
	require.Regexp(t, `charge, after reserve\s+holds 2`, out)
}

func TestLongjobIsTakenOverInOrder(t *testing.T) {
	out := run(t, "longjob")
	require.Contains(t, out, "Bob  waits: 1 of 1; Ann has it since ")
	require.Contains(t, out, "Cid  waits: 2 of 2; Ann has it since ")
	require.Contains(t, out, "Ann  is killed with -9")
	require.Contains(t, out, "Bob  was next in the queue, and took over ")
	require.Contains(t, out, "Done, in order of arrival: Ann, Bob, Cid.")
}

func TestWorkersNeverUseMoreThanTheirPlaces(t *testing.T) {
	out := run(t, "workers")
	require.Contains(t, out, "is killed with -9")
	require.NotContains(t, out, "####")
	require.Contains(t, out, "[###]")
	require.Contains(t, out, "Done: ")
}
