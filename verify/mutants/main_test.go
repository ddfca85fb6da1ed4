package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree is a module with one function, one test that checks it, and one that does not.
func tree(t *testing.T) string {
	root := t.TempDir()
	write(t, root, "go.mod", "module tree\n")
	write(t, root, "sum.go", "package tree\n\nfunc sum(a, b int) int {\n\treturn a + b\n}\n")
	write(t, root, "sum_test.go", `package tree

import "testing"

func TestSum(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if sum(1, 2) != 3 {
			t.Error("wrong")
		}
	})
}

func TestNothing(t *testing.T) {}

func TestBroken(t *testing.T) { t.Error("always") }
`)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "verify", "mutants", "planted"), 0o700))
	return root
}

func write(t *testing.T, root, name, text string) {
	require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
}

// planted tests one mutant in a tree.
func planted(t *testing.T, test, change string) ([]row, error) {
	root := tree(t)
	write(t, root, "verify/mutants/planted/m.diff", "breaks: sums\ncaught by: . "+test+"\n\n@@ sum.go\n"+change)
	all, err := readAll(filepath.Join(root, "verify", "mutants", "planted"), "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	rows := plant(root, all[0])
	unchanged, readErr := os.ReadFile(filepath.Join(root, "sum.go"))
	require.NoError(t, readErr)
	require.Contains(t, string(unchanged), "a + b", "the tree is not touched")
	return rows, passUnchanged(root, all)
}

func TestAFailedTestCatches(t *testing.T) {
	rows, err := planted(t, "^TestSum$", "-\treturn a + b\n+\treturn a - b\n")
	require.NoError(t, err)
	require.Equal(t, []row{{true, ". TestSum/of_two"}}, rows)
}

// No other failure counts as a catch.
func TestNothingElseCatches(t *testing.T) {
	const wrong = "-\treturn a + b\n+\treturn a - b\n"
	for name, c := range map[string]struct{ test, change, says string }{
		"a test that does not look": {"^TestNothing$", wrong, "passes though sums"},
		"a test that is not there":  {"^TestGone$", wrong, "no such test"},
		"a change that does not build": {"^TestSum$", "-\treturn a + b\n+\treturn a b\n",
			"does not build"},
		"a change of the test's package that ends it": {"^TestNothing$",
			" func sum(a, b int) int {\n+\treturn a - b\n+}\n+\n+func init() {\n+\tpanic(\"no\")\n+}\n+\n+func other(a, b int) int {\n", "no such test"},
		"code that has changed":     {"^TestSum$", "-\treturn a * b\n+\treturn a - b\n", "0 times"},
		"a part of a line":          {"^TestSum$", "-return a + b\n+return a - b\n", "0 times"},
		"a place that is not exact": {"^TestSum$", "-}\n+}\n \n", "0 times"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, _ := planted(t, c.test, c.change)
			require.Len(t, rows, 1)
			require.False(t, rows[0].caught)
			require.Contains(t, rows[0].text, c.says)
		})
	}
}

func TestAHangIsNoCatch(t *testing.T) {
	r := read([]byte(strings.Join([]string{
		`{"Action":"run","Test":"TestSum"}`,
		`{"Action":"output","Test":"TestSum","Output":"panic: test timed out after 1m0s\n"}`,
		`{"Action":"fail","Test":"TestSum"}`,
	}, "\n")))
	require.Equal(t, "hangs", r.fault)
}

func TestATestThatFailsAnywayCatchesNothing(t *testing.T) {
	_, err := planted(t, "^TestBroken$", "-\treturn a + b\n+\treturn a - b\n")
	require.ErrorContains(t, err, "TestBroken")
	require.ErrorContains(t, err, "--- FAIL", "what it wrote")
}

func TestBadFilesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no change":      "breaks: sums\ncaught by: . ^TestSum$\n",
		"no test":        "breaks: sums\n\n@@ sum.go\n-a\n+b\n",
		"a foreign line": "breaks: sums\ncaught by: . ^TestSum$\n\n@@ sum.go\na\n",
		"a foreign word": "brakes: sums\n",
	} {
		root := tree(t)
		write(t, root, "verify/mutants/planted/m.diff", text)
		_, err := readAll(filepath.Join(root, "verify", "mutants", "planted"), "")
		require.Error(t, err, name)
	}
}

// The code that a mutant changes is there, exactly once, and compiles with the change. If this
// fails, the code has changed. Update the mutant, so that it has its fault again.
func TestMutantsFitTheCode(t *testing.T) {
	all, err := readAll("planted", "")
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	p, err := loadProduct(root)
	require.NoError(t, err)
	for _, m := range all {
		changed, err := m.apply(root)
		if !assert.NoError(t, err, m.name) {
			continue
		}
		broken, err := p.compileErrors(changed)
		require.NoError(t, err, m.name)
		assert.Empty(t, broken, m.name)
	}
}

// go test runs a pattern that no test matches, and reports no failure. So a test that was renamed
// or moved would only show when somebody plants the mutant.
func TestMutantsNameTestsThatExist(t *testing.T) {
	all, err := readAll("planted", "")
	require.NoError(t, err)
	names := map[string][]string{} // of tests, by package
	for _, m := range all {
		for _, test := range m.tests {
			require.True(t, test.pkg == "." || strings.HasPrefix(test.pkg, "./"), "%s: %s is no directory of this module", m.name, test.pkg)
			top, _, _ := strings.Cut(test.pattern, "/")
			pattern, err := regexp.Compile(top)
			require.NoError(t, err, m.name)
			if names[test.pkg] == nil {
				names[test.pkg] = testNames(t, filepath.Join("..", "..", test.pkg))
			}
			assert.True(t, slices.ContainsFunc(names[test.pkg], pattern.MatchString),
				"%s: package %s has no test %s", m.name, test.pkg, test.pattern)
		}
	}
}

// testNames returns the names of the tests in a directory.
func testNames(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range testFunction.FindAllSubmatch(text, -1) {
			names = append(names, string(name[1]))
		}
	}
	return names
}
