package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// make test depends on this script: a module that fails must fail the target, also if another one
// passes after it.
func TestTwoFoldersNamesTheFoldersThatFailed(t *testing.T) {
	script, err := filepath.Abs("../../../scripts/two-folders.sh")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, folder := range []string{"good", "bad", "better"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	run := func(folders ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), script, "bash", "-c", `echo "I am ${PWD##*/}"; [[ $PWD != */bad ]]`)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(strings.Join(folders, "\n"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("good", "better")
	require.NoError(t, err)
	require.Contains(t, out, "good: I am good\n")
	require.NotContains(t, out, "failed")

	for _, failing := range []string{"bad", "missing"} {
		out, err = run(failing, "good", "better")
		require.Error(t, err)
		require.Contains(t, out, "better: I am better\n")
		require.True(t, strings.HasSuffix(out, "failed in:\n"+failing+"\n"), out)
	}
}
