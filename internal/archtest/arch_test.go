// Package archtest holds the rules of who may import whom, and a few others that
// a compiler does not check. When a rule hurts, change it here, in the commit
// that needs it, and say why.
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

// short is the path inside the module; "." is the root package, and paths of
// others stay whole.
func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

var testHelpers = []string{
	"internal/redistest", "internal/locktest", "internal/archtest",
	// The fault suite: what clients did, and what to think of it.
	"internal/history", "internal/check", "internal/workload",
}

// may lists what a package of ours may import of ours. A package that is not
// listed may import anything but test helpers.
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
	// The waiting in a queue: for the fair mutex and the semaphore.
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

// sources walks over the library's own Go files, tests left out.
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

// Timers, channels and pools at package level belong to no client: they cannot
// be closed with one, and break tests in virtual time.
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

// What is sent to Redis may run on when its caller has left; see session.Do. So it
// changes nothing that it has in common with the caller, and reads nothing that the
// caller changes: what it learns is its value.
func TestWhatIsSentSharesNothingWithItsCaller(t *testing.T) {
	senders := []string{"Do", "operate", "Ask", "ForceRelease"}
	found := 0
	sources(t, func(path string, file *ast.File, set *token.FileSet) {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !slices.Contains(senders, calledName(call)) {
					return true
				}
				for _, arg := range call.Args {
					if sent, ok := arg.(*ast.FuncLit); ok && asksRedis(sent) {
						found++
						for _, shared := range sharedWith(sent, f) {
							t.Errorf("%s: %s is changed, and shared by what is sent and its caller", set.Position(sent.Pos()), shared)
						}
					}
				}
				return true
			})
		}
	})
	require.Greater(t, found, 10, "what is sent was found")
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// asksRedis reports whether a function has the form of what session.Do sends: a context
// comes in, and a value and an error go out.
func asksRedis(f *ast.FuncLit) bool {
	params, results := f.Type.Params, f.Type.Results
	if params.NumFields() < 2 || results.NumFields() != 2 {
		return false
	}
	last, ok := results.List[len(results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}

// sharedWith lists what a function inside another one changes of what is declared
// outside of it, and what it reads that the other one changes again.
func sharedWith(inner *ast.FuncLit, outer *ast.FuncDecl) (shared []string) {
	own := declaredIn(inner)
	for name := range changedIn(inner) {
		if !own[name] {
			shared = append(shared, name)
		}
	}
	outside := changedIn(outer)
	ast.Inspect(inner.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && !own[x.Name] && outside[x.Name+"."+n.Sel.Name] {
				shared = append(shared, x.Name+"."+n.Sel.Name)
			}
		case *ast.Ident:
			if !own[n.Name] && outside[n.Name] {
				shared = append(shared, n.Name)
			}
		}
		return true
	})
	return shared
}

// declaredIn has the names that a function declares.
func declaredIn(f *ast.FuncLit) map[string]bool {
	names := map[string]bool{}
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			names[id.Name] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key)
				add(n.Value)
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		}
		return true
	})
	return names
}

// changedIn has what a function assigns to without declaring it there: variables, and
// fields as "variable.field" and as the variable.
func changedIn(f ast.Node) map[string]bool {
	names := map[string]bool{}
	add := func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.Ident:
			if e.Name != "_" {
				names[e.Name] = true
			}
		case *ast.SelectorExpr:
			if x, ok := e.X.(*ast.Ident); ok {
				names[x.Name+"."+e.Sel.Name] = true
			}
		case *ast.IndexExpr:
			if x, ok := e.X.(*ast.Ident); ok {
				names[x.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.IncDecStmt:
			add(n.X)
		}
		return true
	})
	return names
}

func TestSharingIsSeen(t *testing.T) {
	for body, shared := range map[string][]string{
		`x := 0; send(func(a, b int) (int, error) { x = a; return 0, nil })`:                                   {"x"},
		`x, y := 0, 0; send(func(a, b int) (int, error) { x, y = x+a, b; return 0, nil })`:                     {"x", "y"},
		`send(func(a, b int) (int, error) { w.ticket++; return 0, nil })`:                                      {"w.ticket"},
		`send(func(a, b int) (int, error) { return w.ticket, nil }); w.ticket = 2`:                             {"w.ticket"},
		`ctx := 0; ctx = 1; send(func(a, b int) (int, error) { return ctx, nil })`:                             {"ctx"},
		`m := map[int]int{}; send(func(a, b int) (int, error) { m[1] = 2; return 0, nil })`:                    {"m"},
		`x := 0; send(func(a, b int) (int, error) { x := a; x = b; a++; return x, nil })`:                      nil,
		`w.place = 1; send(func(a, b int) (r int, err error) { r, err = w.ticket, nil; return r, err })`:       nil,
		`send(func(a, b int) (int, error) { for i, x := range y { x = i }; var z int; z = a; return z, nil })`: nil,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {"+body+"}", 0)
		require.NoError(t, err, body)
		f := file.Decls[len(file.Decls)-1].(*ast.FuncDecl)
		var sent *ast.FuncLit
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.FuncLit); ok {
				sent = lit
			}
			return true
		})
		require.True(t, asksRedis(sent), body)
		got := sharedWith(sent, f)
		slices.Sort(got)
		require.Equal(t, shared, slices.Compact(got), body)
	}
}
