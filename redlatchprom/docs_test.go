package redlatchprom_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go block of docs/metrics.md is in the examples of the two modules, letter for letter.
func TestTheCodeOfThePageIsCompiled(t *testing.T) {
	t.Parallel()
	examples := ""
	for _, module := range []string{"redlatchprom", "redlatchotel"} {
		text, err := os.ReadFile(filepath.Join("..", module, "example_test.go"))
		require.NoError(t, err)
		examples += string(text)
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		require.True(t, strings.Contains(examples, block[1]), block[1])
	}
}
