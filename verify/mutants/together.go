package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosenBy is the environment variable that selects the mutant in a test binary with many mutants.
const chosenBy = "REDLATCH_MUTANT"

// together makes one changed tree with many mutants, so that the tests of a package are built once
// and not for each mutant. Each function gets the changed bodies before its own:
//
//	func f() {
//		if chosenMutant == 7 {
//			changed body
//		}
//		body
//	}
//
// It returns the changed files, and the number of each mutant in them by its identity. Changes of
// constants and variables of a package are not in them.
func (p *product) together(sample []change) (files map[string]string, numbers map[string]int, err error) {
	files, numbers = map[string]string{}, map[string]int{}
	byPath := map[string][]change{}
	for _, c := range sample {
		byPath[c.path] = append(byPath[c.path], c)
	}
	texts := map[int]string{} // of changed scripts
	for name, changes := range byPath {
		src, err := os.ReadFile(filepath.Join(p.root, name))
		if err != nil {
			return nil, nil, err
		}
		if path.Ext(name) == ".lua" {
			for _, c := range changes {
				number(numbers, &c)
				texts[numbers[c.identity()]] = c.apply(string(src))
			}
			continue
		}
		text, err := withBodies(name, string(src), changes, numbers)
		if err != nil {
			return nil, nil, err
		}
		files[name] = text
		files[path.Join(path.Dir(name), "chosen_mutant.go")] = chooser(string(src))
	}
	if len(texts) > 0 {
		err = p.withScripts(files, sample, numbers, texts)
	}
	return files, numbers, err
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// chooser is the file that says which mutant the package is.
func chooser(src string) string {
	return packageClause.FindString(src) + `

import (
	"os"
	"strconv"
)

var chosenMutant, _ = strconv.Atoi(os.Getenv("` + chosenBy + `"))
`
}

// withBodies puts changed bodies into the functions of a file.
func withBodies(name, src string, changes []change, numbers map[string]int) (string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	done := 0
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || !bearsBodies(fn) {
			continue
		}
		from, to := fset.Position(fn.Body.Lbrace).Offset+1, fset.Position(fn.Body.Rbrace).Offset
		b.WriteString(src[done:from])
		done = from
		for _, c := range changes {
			if c.start < from || c.end > to {
				continue
			}
			if !number(numbers, &c) {
				continue
			}
			fmt.Fprintf(&b, "\nif chosenMutant == %d {\n%s%s%s%s\n", numbers[c.identity()], ownParameters(fn), src[from:c.start], c.text, src[c.end:to])
			if fn.Type.Results == nil {
				b.WriteString("return\n")
			}
			b.WriteString("}\n")
		}
	}
	b.WriteString(src[done:])
	return b.String(), nil
}

// number gives a change a number of its own, and reports false if it had one.
func number(numbers map[string]int, c *change) bool {
	if _, has := numbers[c.identity()]; has {
		return false
	}
	numbers[c.identity()] = len(numbers) + 1
	return true
}

// ownParameters declares the parameters of a function anew, for a body in a block. Without that, a
// body that begins with ctx, cancel := ... would declare another ctx, which it may not use.
func ownParameters(fn *ast.FuncDecl) string {
	var b strings.Builder
	fields := fn.Type.Params.List
	if fn.Recv != nil {
		fields = slices.Concat(fn.Recv.List, fields)
	}
	for _, field := range fields {
		for _, name := range field.Names {
			if name.Name != "_" {
				fmt.Fprintf(&b, "%[1]s := %[1]s; _ = %[1]s\n", name.Name)
			}
		}
	}
	return b.String()
}

// bearsBodies reports whether a function may have several bodies, each in a block of its own. It
// may not if a block would change the meaning. Labels belong to the whole function, and variables
// in a block may hide results of the function.
func bearsBodies(fn *ast.FuncDecl) bool {
	results := resultsOf(fn)
	named := len(results) > 0
	bears := !slices.ContainsFunc(fn.Body.List, func(s ast.Stmt) bool {
		a, ok := s.(*ast.AssignStmt)
		return ok && a.Tok == token.DEFINE && slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool {
			v, ok := e.(*ast.Ident)
			return ok && slices.Contains(results, v.Name)
		})
	})
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.LabeledStmt:
			bears = false
		case *ast.DeferStmt:
			bears = bears && !named
		case *ast.ReturnStmt:
			bears = bears && !(named && len(n.Results) == 0)
		}
		return bears
	})
	return bears
}

// resultsOf returns the names of a function's results.
func resultsOf(fn *ast.FuncDecl) (names []string) {
	if fn.Type.Results == nil {
		return nil
	}
	for _, field := range fn.Type.Results.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

var readsScript = regexp.MustCompile(`\bsources\.ReadFile\(`)

// withScripts makes the package that embeds the scripts read changed ones.
func (p *product) withScripts(files map[string]string, sample []change, numbers map[string]int, texts map[int]string) error {
	i := slices.IndexFunc(p.packages, func(pkg listed) bool { return len(pkg.EmbedFiles) > 0 })
	if i < 0 {
		return fmt.Errorf("no package embeds scripts")
	}
	dir := p.relative(p.packages[i].Dir)
	var reader string
	for _, file := range p.packages[i].GoFiles {
		name := path.Join(dir, file)
		src, changed := files[name]
		if !changed {
			b, err := os.ReadFile(filepath.Join(p.root, name))
			if err != nil {
				return err
			}
			src = string(b)
		}
		if readsScript.MatchString(src) {
			files[name] = readsScript.ReplaceAllString(src, "readChosen(")
			files[path.Join(dir, "chosen_mutant.go")] = chooser(src)
			reader = packageClause.FindString(src)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nfunc readChosen(name string) ([]byte, error) {\nswitch {\n", reader)
	for _, c := range sample {
		if text, ok := texts[numbers[c.identity()]]; ok && path.Ext(c.path) == ".lua" {
			fmt.Fprintf(&b, "case chosenMutant == %d && name == %q:\nreturn []byte(%s), nil\n",
				numbers[c.identity()], strings.TrimPrefix(c.path, dir+"/"), strconv.Quote(text))
		}
	}
	b.WriteString("}\nreturn sources.ReadFile(name)\n}\n")
	files[path.Join(dir, "chosen_script.go")] = b.String()
	return nil
}
