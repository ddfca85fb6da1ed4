package redlatchtest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/redlatchtest"
)

// Every Go block of docs/testing.md is in the tests of this package, letter for letter.
func TestTheCodeOfThePageIsCompiled(t *testing.T) {
	t.Parallel()
	page := readPage(t)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var tests strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		tests.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.GreaterOrEqual(t, len(blocks), 3)
	for _, block := range blocks {
		require.Contains(t, tests.String(), block[1])
	}
}

// Every method has its row in the table of the page.
func TestThePageNamesEveryMethod(t *testing.T) {
	t.Parallel()
	page := readPage(t)
	for method := range reflect.TypeFor[*redlatchtest.Server]().Methods() {
		require.Contains(t, page, "| `"+method.Name)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "testing.md"))
	require.NoError(t, err)
	return string(page)
}
