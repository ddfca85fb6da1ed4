package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/gopher-lua/parse"
)

// listed is the output of go list for a package.
type listed struct {
	ImportPath   string
	Dir          string
	Export       string
	GoFiles      []string
	EmbedFiles   []string
	TestGoFiles  []string
	XTestGoFiles []string
	Module       *struct{ Main bool }
}

func (p listed) isOurs() bool { return p.Module != nil && p.Module.Main }

func (p listed) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// product is the code that users import: the package in the root of the module, and the packages of
// the module that it depends on.
type product struct {
	root     string
	packages []listed
	importer func() (types.Importer, error) // builds its imports, once
}

func loadProduct(root string) (*product, error) {
	all, err := goList(root, "-deps", ".")
	if err != nil {
		return nil, err
	}
	p := &product{root: root, importer: sync.OnceValues(func() (types.Importer, error) { return importBuilt(root) })}
	for _, pkg := range all {
		if pkg.isOurs() {
			p.packages = append(p.packages, pkg)
		}
	}
	return p, nil
}

// importBuilt reads types from the output of the compiler.
func importBuilt(root string) (types.Importer, error) {
	all, err := goList(root, "-export", "-deps", ".")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, pkg := range all {
		files[pkg.ImportPath] = pkg.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	}), nil
}

func goList(root string, args ...string) (all []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// relative is a directory in the form of the report: "." or "internal/pubsub".
func (p *product) relative(dir string) string {
	rel, err := filepath.Rel(p.root, dir)
	if err != nil {
		return dir
	}
	return filepath.ToSlash(rel)
}

// changes returns all mutants of the product, by their directory. It includes those that do not
// compile.
func (p *product) changes() (map[string][]change, error) {
	all := map[string][]change{}
	for _, pkg := range p.packages {
		dir := p.relative(pkg.Dir)
		for _, file := range slices.Concat(pkg.GoFiles, pkg.EmbedFiles) {
			name := path.Join(dir, file)
			src, err := os.ReadFile(filepath.Join(p.root, name))
			if err != nil {
				return nil, err
			}
			var found []change
			switch path.Ext(name) {
			case ".go":
				if found, err = goChanges(name, string(src)); err != nil {
					return nil, err
				}
			case ".lua":
				found = luaChanges(name, string(src))
			}
			all[path.Dir(name)] = append(all[path.Dir(name)], found...)
		}
	}
	return all, nil
}

// compiles reports whether the package of the change compiles with it.
func (p *product) compiles(c *change) (bool, error) {
	src, err := os.ReadFile(filepath.Join(p.root, c.path))
	if err != nil {
		return false, err
	}
	broken, err := p.compileErrors(map[string]string{c.path: c.apply(string(src))})
	return len(broken) == 0, err
}

// compileErrors returns why changed files do not compile. It checks types and builds nothing, which
// takes some milliseconds. It checks each package against the others as they are in the tree.
func (p *product) compileErrors(changed map[string]string) (broken []error, err error) {
	dirs := map[string]bool{}
	for name, text := range changed {
		if path.Ext(name) != ".lua" {
			dirs[path.Dir(name)] = true
		} else if _, err := parse.Parse(strings.NewReader(text), name); err != nil {
			broken = append(broken, err)
		}
	}
	for dir := range dirs {
		why, err := p.typeError(dir, changed)
		if err != nil {
			return nil, err
		}
		if why != nil {
			broken = append(broken, why)
		}
	}
	return broken, nil
}

// typeError returns why a package with changed files does not compile, or nil.
func (p *product) typeError(dir string, changed map[string]string) (why, err error) {
	i := slices.IndexFunc(p.packages, func(pkg listed) bool { return p.relative(pkg.Dir) == dir })
	if i < 0 {
		return nil, fmt.Errorf("no package of the product is in %s", dir)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.packages[i].GoFiles {
		var other any // as in the tree
		if text, ok := changed[path.Join(dir, name)]; ok {
			other = text
		}
		file, err := parser.ParseFile(fset, filepath.Join(p.packages[i].Dir, name), other, parser.SkipObjectResolution)
		if err != nil {
			return err, nil //nolint:nilerr // does not compile
		}
		files = append(files, file)
	}
	imports, err := p.importer()
	if err != nil {
		return nil, err
	}
	_, why = (&types.Config{Importer: imports}).Check(p.packages[i].ImportPath, fset, files, nil)
	return why, nil
}
