package archtest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write api.txt anew")

// public are the packages that programs may import.
var public = []string{".", "reentrant", "fair", "semaphore", "watchdog", "lua", "lock", "lockerr", "event", "redlatchtest", "redlatchprom", "redlatchotel", "redlatchui"}

// A change of the public API has to be meant. If it is, run
//
//	go test ./internal/test/archtest -run TestThePublicAPI -update
//
// and describe the change in CHANGELOG.md.
func TestThePublicAPIIsTheOneInTheSnapshot(t *testing.T) {
	const snapshot = "api.txt"
	now := ""
	for _, dir := range public {
		now += "package " + dir + "\n\n" + strings.Join(exported(t, dir), "\n") + "\n\n"
	}
	if *update {
		require.NoError(t, os.WriteFile(snapshot, []byte(now), 0o644))
	}
	before, err := os.ReadFile(snapshot)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(before), "\n"), strings.Split(now, "\n"))
}

func TestEveryPackageIsPublicOrInternal(t *testing.T) {
	commands := []string{"verify", "examples"}
	for _, p := range packages(t) {
		top, _, _ := strings.Cut(short(p.ImportPath), "/")
		if top != "internal" && !slices.Contains(commands, top) {
			require.Contains(t, public, short(p.ImportPath))
		}
	}
}

// A stranger looks for an example first. The output shows that it runs.
func TestEveryPublicPackageHasAnExampleThatRuns(t *testing.T) {
	for _, dir := range public {
		names, err := filepath.Glob(filepath.Join("..", "..", "..", dir, "*_test.go"))
		require.NoError(t, err)
		var files []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, file)
		}
		runs := slices.ContainsFunc(doc.Examples(files...), func(e *doc.Example) bool { return e.Output != "" })
		require.True(t, runs, "package %s has no example with an output", dir)
	}
}

// exported returns the exported declarations of a package, sorted, without comments and function
// bodies.
func exported(t *testing.T, dir string) (decls []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", dir, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if !ast.FileExports(file) {
			continue
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.IMPORT {
				continue
			}
			if f, ok := decl.(*ast.FuncDecl); ok {
				if f.Recv != nil && !receiverIsExported(f) {
					continue
				}
				f.Body = nil
			}
			var text bytes.Buffer
			require.NoError(t, (&printer.Config{Mode: printer.UseSpaces}).Fprint(&text, set, decl))
			decls = append(decls, text.String())
		}
	}
	require.NotEmpty(t, decls, dir)
	slices.Sort(decls)
	return decls
}
