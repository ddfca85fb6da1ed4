package redlatch_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go block of the README is in the compiled examples, letter for letter.
func TestReadmeCodeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		require.Contains(t, string(examples), block[1])
	}
}

// Every option has its row in the README's table of defaults.
func TestReadmeNamesEveryOption(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("options.go")
	require.NoError(t, err)
	options := regexp.MustCompile(`(?m)^func (With\w+)`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, options)
	for _, option := range options {
		require.True(t, strings.Contains(string(readme), "| `"+option[1]+"` |"), option[1])
	}
}
