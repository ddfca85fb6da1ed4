package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grown is a module with two functions, of which the test runs one.
func grown(t *testing.T) *product {
	root := t.TempDir()
	write(t, root, "go.mod", "module grown\n")
	write(t, root, "sum.go", `package grown

func sum(a, b int) int {
	for b > 0 {
		a++
		b--
	}
	return a
}

func unused(a, b int) int { return a - b }
`)
	write(t, root, "sum_test.go", `package grown

import "testing"

func TestSum(t *testing.T) {
	if sum(1, 2) != 3 {
		t.Error("wrong")
	}
}
`)
	p, err := loadProduct(root)
	require.NoError(t, err)
	return p
}

// judgedMutant judges the generated mutant with this change.
func judgedMutant(t *testing.T, g *generator, change string) finding {
	all, err := g.product.changes()
	require.NoError(t, err)
	if g.dir == "" {
		require.NoError(t, g.plant(all["."]))
		t.Cleanup(func() { _ = os.RemoveAll(g.dir) })
	}
	i := slices.Index(made(all["."]), change)
	require.GreaterOrEqual(t, i, 0)
	ok, err := g.product.compiles(&all["."][i])
	require.NoError(t, err)
	require.True(t, ok)
	return g.judge(all["."][i])
}

func TestGeneratedMutantsAreJudged(t *testing.T) {
	p := grown(t)
	c, err := p.measure("")
	require.NoError(t, err)
	g := &generator{product: p, coverage: c, longest: time.Minute, slack: time.Second}
	require.Equal(t, finding{word: killed, by: ". TestSum"},
		judgedMutant(t, g, "operator: for b > 0 { -> for b >= 0 {"))
	require.Equal(t, finding{word: hung, by: ". TestSum"},
		judgedMutant(t, g, "statement deleted: b-- -> "))
	require.Equal(t, finding{word: survived, by: "no test runs this code"},
		judgedMutant(t, g, "operator: func unused(a, b int) int { return a - b } -> func unused(a, b int) int { return a + b }"))
}

// A measurement is kept until the code or the test changes.
func TestCoverageIsKept(t *testing.T) {
	p := grown(t)
	first, err := p.measure("")
	require.NoError(t, err)
	again, err := p.measure("")
	require.NoError(t, err)
	require.Equal(t, first.Tests, again.Tests)

	write(t, p.root, "sum_test.go", "package grown\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {}\n")
	again, err = p.measure("")
	require.NoError(t, err)
	require.NotEqual(t, first.Tests[0].Key, again.Tests[0].Key)
	require.Empty(t, again.Tests[0].Ran)
}

func TestWhatDoesNotCompileIsNoMutant(t *testing.T) {
	p := grown(t)
	all, err := p.changes()
	require.NoError(t, err)
	for _, c := range all["."] {
		ok, err := p.compiles(&c)
		require.NoError(t, err)
		require.Equal(t, c.operator == "statement deleted" && c.minus[0] == "return a" ||
			c.operator == "statement deleted" && c.scope == "unused", !ok, c.diff())
	}
}

func TestEquivalentsAreRead(t *testing.T) {
	root := t.TempDir()
	read := func(text string) (map[string]string, error) {
		write(t, root, "equivalent.txt", text)
		return readEquivalents(filepath.Join(root, "equivalent.txt"))
	}
	why, err := read("# a comment\n\n@@ p/f.go F.g\n-\th()\n+\ti()\nwhy: both do nothing\n")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"@@ p/f.go F.g\n-h()\n+i()": "both do nothing"}, why)
	for _, text := range []string{"-a\n", "@@ p/f.go\n-a\n", "@@ p/f.go\n-a\nwhy: \n", "@@ p/f.go\na\nwhy: b\n"} {
		_, err := read(text)
		require.Error(t, err, text)
	}
}

// Each mutant that is listed as equivalent is still generated. If this fails, the code has changed.
// Judge the mutant again, and remove it from the list or update it.
func TestEquivalentsFitTheCode(t *testing.T) {
	listed, err := readEquivalents("equivalent.txt")
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	p, err := loadProduct(root)
	require.NoError(t, err)
	all, err := p.changes()
	require.NoError(t, err)
	for _, changes := range all {
		for _, c := range changes {
			delete(listed, c.identity())
		}
	}
	require.Empty(t, listed)
}
