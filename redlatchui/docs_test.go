package redlatchui_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go block of docs/page.md is in the Example, apart from its indentation.
func TestTheCodeOfThePageIsCompiled(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "page.md"))
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	unindented := strings.ReplaceAll(string(example), "\n\t", "\n")
	for _, block := range blocks {
		require.Contains(t, unindented, block[1])
	}
	for _, picture := range regexp.MustCompile(`\]\((images/[^)]*)\)`).FindAllStringSubmatch(string(page), -1) {
		require.FileExists(t, filepath.Join("..", "docs", picture[1]))
	}
	options, err := os.ReadFile("options.go")
	require.NoError(t, err)
	for _, option := range regexp.MustCompile(`(?m)^func (With\w+)`).FindAllStringSubmatch(string(options), -1) {
		require.Contains(t, string(page), "`"+option[1]+"`", "the table of options")
	}
}
