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
	cmd.Dir = "../.."
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
	require.Greater(t, len(all), 10, "the list of packages is not empty")
	return all
}

// short is the path inside the module. "." is the root package. Paths of other modules stay whole.
func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

var testHelpers = []string{
	"internal/redistest", "internal/locktest", "internal/archtest",
	// The fault suite: what clients did, and how to judge it.
	"internal/history", "internal/check", "internal/workload",
}

// may lists the packages of this module that a package may import. A package that is not listed may
// import anything but test helpers.
var may = map[string][]string{
	"lockerr":              {"internal/joined"},
	"watchdog":             {},
	"lua":                  {},
	"internal/owner":       {},
	"internal/joined":      {},
	"internal/wake":        {},
	"internal/sender":      {},
	"internal/key":         {"lockerr", "internal/joined"},
	"internal/settings":    {"lockerr"},
	"internal/session":     {"lockerr", "internal/joined", "lua", "watchdog", "internal/key", "internal/sender", "internal/wake"},
	"internal/acquisition": {"lockerr", "internal/joined", "lua", "watchdog", "internal/owner", "internal/session", "internal/settings"},
	"lock":                 {"lockerr", "internal/joined", "internal/acquisition"},
	"internal/mutex":       {"lock", "lockerr", "lua", "internal/acquisition", "internal/key", "internal/owner", "internal/session", "internal/settings"},
	// Waiting in a queue, for the fair mutex and the semaphore.
	"internal/queue": {"lock", "lua", "watchdog", "internal/key", "internal/session", "internal/settings", "internal/wake"},
	"reentrant":      {"lock", "lockerr", "lua", "internal/acquisition", "internal/mutex", "internal/session", "internal/settings", "internal/wake"},
	"fair":           {"lock", "lockerr", "lua", "internal/acquisition", "internal/key", "internal/mutex", "internal/queue", "internal/session", "internal/settings"},
	"semaphore":      {"lock", "lockerr", "lua", "watchdog", "internal/acquisition", "internal/key", "internal/owner", "internal/queue", "internal/session", "internal/settings"},
	".":              {"lockerr", "internal/joined", "reentrant", "fair", "semaphore", "lock", "internal/acquisition", "internal/key", "internal/mutex", "internal/owner", "internal/session", "internal/settings"},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		allowed, listed := may[short(p.ImportPath)]
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			name := short(imported)
			if listed {
				require.Contains(t, allowed, name, "%s imports %s", short(p.ImportPath), name)
			}
			if !slices.Contains(testHelpers, short(p.ImportPath)) {
				require.NotContains(t, testHelpers, name, "%s imports a test helper", short(p.ImportPath))
			}
			require.False(t, strings.HasPrefix(short(p.ImportPath), "examples/") && strings.HasPrefix(name, "internal/"),
				"%s: an example uses what users cannot", short(p.ImportPath))
		}
	}
}

func TestOnlyThoseThatSpeakToRedisImportIt(t *testing.T) {
	speakers := []string{".", "lua", "internal/sender", "internal/wake", "internal/redistest", "internal/locktest", "internal/check"}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if strings.HasPrefix(name, "examples/") || slices.Contains(speakers, name) {
			continue
		}
		for _, imported := range p.Imports {
			require.False(t, strings.HasPrefix(imported, "github.com/redis/"), "%s imports %s", name, imported)
		}
	}
}

// sources visits the Go files of the library, without tests.
func sources(t *testing.T, visit func(path string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	set := token.NewFileSet()
	n := 0
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." || slices.Contains(testHelpers, rel) || rel == "examples" || rel == "benchmarks" {
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
