package redlatch_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readAll returns the text of files of this repository.
func readAll(t *testing.T, names ...string) string {
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// Strangers read the first screen only.
func TestTheReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(readme), "\n"), 120)
}

// Every Go block of the README and of these pages is in the compiled examples, letter for letter.
func TestDocumentedCodeIsCompiled(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	text := readAll(t, "README.md", "docs/usage.md", "docs/choosing.md", "docs/production.md")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		require.Contains(t, string(examples), block[1])
	}
}

// Every option has its row in the table of defaults.
func TestTheTableOfDefaultsNamesEveryOption(t *testing.T) {
	text := readAll(t, "README.md", "docs/usage.md")
	source, err := os.ReadFile("options.go")
	require.NoError(t, err)
	options := regexp.MustCompile(`(?m)^func (With\w+)`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, options)
	for _, option := range options {
		require.True(t, strings.Contains(text, "| `"+option[1]+"` |"), option[1])
	}
}
