package migrating_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Every Go block of docs/migrating.md is in the tests of this package, letter for letter.
func TestTheCodeOfThePageIsCompiled(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migrating.md"))
	require.NoError(t, err)
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		tests.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 10)
	for _, block := range blocks {
		require.Contains(t, tests.String(), block[1])
	}
}
