package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The page in the repository is what the program prints, so packages need not run it.
func TestTheManPage(t *testing.T) {
	var out, errOut bytes.Buffer
	require.Equal(t, 0, newApp(os.Stdin, &out, &errOut).execute([]string{"man"}), errOut.String())
	page := out.String()
	path := filepath.Join("man", "redlatch.1")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), page, "go test -run TestTheManPage -update writes %s again", path)

	root := newRoot(newApp(os.Stdin, &out, &errOut))
	require.NotEmpty(t, root.Commands())
	for _, cmd := range root.Commands() {
		name := strings.ReplaceAll(cmd.Name(), "-", `\-`)
		require.Contains(t, page, "\n.SS redlatch "+name)
		_, section, _ := strings.Cut(page, "\n.SS redlatch "+name)
		section, _, _ = strings.Cut(section, "\n.S")
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			require.Contains(t, section, `\-\-`+strings.ReplaceAll(f.Name, "-", `\-`), cmd.Name())
		})
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, ".") {
			require.Regexp(t, `^\.(TH|SH|SS|TP|B|PP|nf|fi|RS|RE)\b`, line, "text that looks like a macro")
		}
	}
}

func TestManEscapesText(t *testing.T) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "redlatch", Short: "Be a test", Long: ".SH not a heading\n'nor this\n\nback\\slash -n"}
	require.NoError(t, writeMan(&out, root))
	require.Contains(t, out.String(), "redlatch \\- be a test\n")
	require.Contains(t, out.String(), "\\&.SH not a heading\n\\&'nor this\n.PP\nback\\eslash \\-n\n")
}

// groff says what it does not understand.
func TestGroffUnderstandsTheManPage(t *testing.T) {
	path, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("needs groff")
	}
	cmd := exec.Command(path, "-man", "-ww", "-Tutf8", filepath.Join("man", "redlatch.1"))
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	shown, err := cmd.Output()
	require.NoError(t, err)
	require.Empty(t, errOut.String())
	require.Contains(t, string(shown), "The lock was lost while the command of redlatch run ran.")
}
