package redlatch_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documentation returns the README and the page for users.
func documentation(t *testing.T) string {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	usage, err := os.ReadFile("docs/usage.md")
	require.NoError(t, err)
	return string(readme) + string(usage)
}

// Strangers read the first screen only.
func TestTheReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(readme), "\n"), 120)
}

// Every Go block of the README and of the page for users is in the compiled examples, letter for letter.
func TestDocumentedCodeIsCompiled(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(documentation(t), -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		require.Contains(t, string(examples), block[1])
	}
}

// Every option has its row in the table of defaults.
func TestTheTableOfDefaultsNamesEveryOption(t *testing.T) {
	text := documentation(t)
	source, err := os.ReadFile("options.go")
	require.NoError(t, err)
	options := regexp.MustCompile(`(?m)^func (With\w+)`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, options)
	for _, option := range options {
		require.True(t, strings.Contains(text, "| `"+option[1]+"` |"), option[1])
	}
}
