package redlatch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/event"
)

// Strangers read the first screen only.
func TestTheReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(readme), "\n"), 120)
}

// Every Go block of the README and of these pages is in the compiled examples, letter for letter.
func TestDocumentedCodeIsCompiled(t *testing.T) {
	examples := readAll(t, "example_test.go", "lock/example_test.go", "lockerr/example_test.go")
	text := readAll(t, "README.md", "docs/usage.md", "docs/choosing.md", "docs/production.md")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		require.True(t, strings.Contains(examples, block[1]), block[1])
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

// Alerts are about events that exist.
func TestTheAlertsNameEvents(t *testing.T) {
	events := map[string]bool{}
	for v := range uint8(255) {
		events[event.Kind(v).String()], events[event.Result(v).String()] = true, true
	}
	table := regexp.MustCompile(`(?m)^\| event \| alert .*\n(?:\|.*\n)+`).FindString(readAll(t, "docs/production.md"))
	rows := strings.Split(strings.TrimSpace(table), "\n")
	require.Greater(t, len(rows), 10)
	for _, row := range rows[2:] {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			require.True(t, events[name[1]], row)
		}
	}
}

// Every link between files of this repository leads somewhere, also to a heading. Every page in
// docs has its line in an index.
func TestTheLinksOfTheDocumentation(t *testing.T) {
	files, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, dir := range []string{"docs", "docs/adr", "verify", "verify/*", "benchmarks", "redlatchtest"} {
		more, err := filepath.Glob(filepath.Join(dir, "*.md"))
		require.NoError(t, err)
		files = append(files, more...)
	}
	linked := map[string]bool{}
	for _, file := range files {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(t, file), -1) {
			path, heading, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s: %s", file, link[1])
			if heading != "" {
				require.Contains(t, headings(t, target), heading, "%s: %s", file, link[1])
			}
			if filepath.Base(file) == "README.md" && strings.HasPrefix(file, "docs") {
				linked[target] = true
			}
		}
	}
	for _, file := range files {
		if filepath.Dir(file) == "docs" || filepath.Dir(file) == "docs/adr" {
			require.True(t, linked[file] || file == "docs/README.md", "no index lists %s", file)
		}
	}
}

// prose returns a page without its blocks of code.
func prose(t *testing.T, file string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(readAll(t, file), "")
}

// headings returns the names under which links find the headings of a page.
func headings(t *testing.T, file string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(t, file), -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(text, " ", "-"))
	}
	return names
}

// A document that names a test as a proof is wrong when the test is gone.
func TestTheDocumentsNameTestsThatExist(t *testing.T) {
	functions := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range defined.FindAllStringSubmatch(string(text), -1) {
			functions[name[1]] = true
		}
		return err
	}))
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	records, err := filepath.Glob("docs/adr/*.md")
	require.NoError(t, err)
	named := 0
	for _, document := range append(append(documents, records...), "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
			named++
			require.True(t, functions[name[1]], "%s names %s", document, name[1])
		}
	}
	require.Greater(t, named, 100)
}
