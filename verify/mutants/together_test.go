package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bodies puts all mutants of a file into it.
func bodies(t *testing.T, src string) (text string, numbers map[string]int) {
	changes, err := goChanges("p/f.go", src)
	require.NoError(t, err)
	numbers = map[string]int{}
	text, err = withBodies("p/f.go", src, changes, numbers)
	require.NoError(t, err)
	_, err = parser.ParseFile(token.NewFileSet(), "f.go", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	return text, numbers
}

func TestAFunctionBearsItsChangedBodies(t *testing.T) {
	text, numbers := bodies(t, "package p\n\nfunc f(a, b int) int {\n\treturn a + b\n}\n\nfunc g() {\n\th()\n}\n")
	require.Contains(t, text, "func f(a, b int) int {\nif chosenMutant == ")
	require.Contains(t, text, "\treturn a - b\n\n}\n")
	require.True(t, strings.HasSuffix(text, "\nreturn\n}\n\n\th()\n}\n"), "the body of no result ends with a return:\n%s", text)
	require.Len(t, numbers, 4)
}

// In a block, := would declare another ctx. Without its last use, the tree would not compile.
func TestABodyDeclaresItsParametersAnew(t *testing.T) {
	text, numbers := bodies(t, "package p\n\nfunc (r *R) f(_ int, ctx C) {\n\tctx, cancel := with(ctx)\n\tdefer cancel()\n\tr.stop(ctx)\n}\n")
	require.NotEmpty(t, numbers)
	require.Equal(t, len(numbers), strings.Count(text, "{\nr := r; _ = r\nctx := ctx; _ = ctx\n"))
}

func TestAChangeHasOneNumber(t *testing.T) {
	changes, err := goChanges("p/f.go", "package p\n\nfunc f() {\n\tg()\n}\n")
	require.NoError(t, err)
	numbers := map[string]int{}
	require.True(t, number(numbers, &changes[0]))
	require.False(t, number(numbers, &changes[0]))
	require.Len(t, numbers, 1)
}

// In these functions, a body in a block of its own would have another meaning.
func TestSomeFunctionsBearNoBodies(t *testing.T) {
	for name, src := range map[string]string{
		"a label":                "func f() {\nouter:\n\tfor {\n\t\tcontinue outer\n\t}\n}",
		"a deferred result":      "func f() (err error) {\n\tdefer g(&err)\n\treturn h()\n}",
		"a result without name":  "func f() (err error) {\n\terr = g()\n\treturn\n}",
		"a result declared anew": "func f() (a int, err error) {\n\tb, err := g()\n\treturn b, err\n}",
		"no function":            "const a = 1",
	} {
		src = "package p\n\n" + src + "\n"
		text, numbers := bodies(t, src)
		require.Equal(t, src, text, name)
		require.Empty(t, numbers, name)
	}
}
