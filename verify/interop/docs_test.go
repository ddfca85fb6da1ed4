package interop_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that the document names exists. The document names every test of Java and Go together.
func TestTheDocumentNamesItsProofs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "redisson.md"))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
		named[name] = true
	}
	require.NotEmpty(t, named)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	there := map[string]bool{}
	for _, file := range files {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(code), -1) {
			there[m[1]] = true
			require.True(t, named[m[1]] || file == "docs_test.go", "docs/redisson.md does not name %s", m[1])
		}
	}
	for name := range named {
		require.True(t, there[name], "docs/redisson.md names %s, which is not there", name)
	}
	require.Contains(t, string(text), "Redisson "+redissonOfTheProject(t)+" on JDK", "the version that is tested")
}

// Each row of a table that has a column for proofs names a test there.
func TestEachPromiseOfTheDocumentNamesAProof(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "redisson.md"))
	require.NoError(t, err)
	rows, inTable := 0, false
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case strings.HasSuffix(line, "| proved by |"):
			inTable = true
		case inTable && !strings.HasPrefix(line, "|--"):
			rows++
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			require.Regexp(t, `\bTest[A-Z]\w+`, cells[len(cells)-1], "a row without proof: %s", line)
		}
	}
	require.Greater(t, rows, 15, "rows that were checked")
}

// redissonOfTheProject is the version that Maven fetches.
func redissonOfTheProject(t *testing.T) string {
	t.Helper()
	pom, err := os.ReadFile(filepath.Join("driver", "pom.xml"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(pom), "<redisson.version>")
	version, _, ended := strings.Cut(rest, "<")
	require.True(t, found && ended)
	return version
}
