// Package archtest has rules about imports, and a few others that the compiler does not check. If a
// rule is in the way, change it here, in the commit that needs the change, and give the reason.
package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/redlatch/redlatch"

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
	require.True(t, slices.ContainsFunc(all, func(p pkg) bool { return p.ImportPath == module }), "the root package is in the list")
	return all
}

// short is the path inside the module. "." is the root package. Paths of other modules stay whole.
func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// sources visits the Go files of the library, without tests.
func sources(t *testing.T, visit func(path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	set := token.NewFileSet()
	n := 0
	root := filepath.Join("..", "..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "internal/test" || rel == "examples" || rel == "benchmarks" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		n++
		visit(rel, file, set)
		return err
	}))
	require.Greater(t, n, 20, "the library's files were found")
}

func TestFunctionsFitOnAScreen(t *testing.T) {
	const most = 60
	sources(t, func(path string, file *ast.File, set *token.FileSet) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
				require.LessOrEqual(t, lines, most, "%s: %s", path, f.Name.Name)
			}
		}
	})
}

func TestExportedNamesAreDocumented(t *testing.T) {
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || receiverIsExported(d)) {
					standard := d.Name.Name == "Error" || d.Name.Name == "NoRetry"
					require.True(t, d.Doc != nil || standard, "%s: %s has no doc comment", path, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
						require.True(t, d.Doc != nil || s.Doc != nil, "%s: %s has no doc comment", path, s.Name.Name)
					}
				}
			}
		}
	})
}

// A comment whose first word is another name is left over from a rename.
func TestDocCommentsBeginWithTheName(t *testing.T) {
	begins := func(path, name string, doc *ast.CommentGroup) {
		if doc == nil {
			return
		}
		text := doc.Text()
		for _, article := range []string{"A ", "An ", "The "} {
			text = strings.TrimPrefix(text, article)
		}
		first := strings.TrimRight(strings.Fields(text + " .")[0], ",.:")
		require.Contains(t, []string{name, name + "'s"}, first, path)
	}
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				begins(path, d.Name.Name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && len(d.Specs) == 1 {
						begins(path, s.Name.Name, d.Doc)
					} else if ok {
						begins(path, s.Name.Name, s.Doc)
					}
				}
			}
		}
	})
}

func receiverIsExported(f *ast.FuncDecl) bool {
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	name, ok := expr.(*ast.Ident)
	return ok && name.IsExported()
}

// Timers, channels and pools at package level belong to no client. Closing a client cannot close
// them, and they break tests in virtual time.
func TestNoSharedStateAtPackageLevel(t *testing.T) {
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ChanType:
					t.Errorf("%s: a channel at package level", path)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						name := x.Name + "." + n.Sel.Name
						require.NotContains(t, []string{"sync.Pool", "sync.Mutex", "time.NewTimer", "time.NewTicker", "time.AfterFunc"}, name, path)
					}
				}
				return true
			})
		}
	})
}
