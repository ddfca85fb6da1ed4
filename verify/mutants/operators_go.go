package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// swaps has the replacement for each operator.
var swaps = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
	"+": "-", "-": "+", "*": "/", "/": "*", "&&": "||", "||": "&&",
	"+=": "-=", "-=": "+=",
	"true": "false", "false": "true", "min": "max", "max": "min",
}

// goFile collects the changes of one Go file.
type goFile struct {
	path    string
	src     string
	fset    *token.FileSet
	scope   string
	lines   [2]int           // of the declaration: the first and the last
	results []*ast.FieldList // of the functions around, with the innermost last
	changes []change
}

// goChanges returns the generated mutants of a Go file. It does not check whether they compile.
func goChanges(path, src string) ([]change, error) {
	f := &goFile{path: path, src: src, fset: token.NewFileSet()}
	file, err := parser.ParseFile(f.fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f.scope, f.lines = "", [2]int{}
		if fn, ok := d.(*ast.FuncDecl); ok {
			f.scope = scopeOf(fn)
			f.lines = [2]int{f.fset.Position(fn.Pos()).Line, f.fset.Position(fn.End()).Line}
		}
		f.walk(d)
	}
	return complete(src, f.changes), nil
}

func scopeOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func (f *goFile) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *goFile) text(n ast.Node) string { return f.src[f.offset(n.Pos()):f.offset(n.End())] }

func (f *goFile) add(operator string, from, to token.Pos, text string) {
	f.changes = append(f.changes, change{
		path: f.path, scope: f.scope, scopeLines: f.lines, operator: operator,
		start: f.offset(from), end: f.offset(to), text: text,
	})
}

func (f *goFile) replace(operator string, n ast.Node, text string) {
	f.add(operator, n.Pos(), n.End(), text)
}

// walk visits n and its children. It visits functions separately, because returns depend on them.
func (f *goFile) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				f.inside(n.Type.Results, n.Body)
			}
			return false
		case *ast.FuncLit:
			f.inside(n.Type.Results, n.Body)
			return false
		case *ast.ImportSpec, *ast.ArrayType, *ast.StructType:
			return false
		case *ast.GenDecl:
			return !countsByIota(n)
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "make" {
				return false // sizes change nothing that a test could see
			}
		}
		f.visit(n)
		return true
	})
}

func (f *goFile) inside(results *ast.FieldList, body *ast.BlockStmt) {
	f.results = append(f.results, results)
	f.walk(body)
	f.results = f.results[:len(f.results)-1]
}

// countsByIota: constants that only need to differ, so any numbers do.
func countsByIota(d *ast.GenDecl) (counts bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		counts = counts || ok && name.Name == "iota"
		return !counts
	})
	return d.Tok == token.CONST && counts
}

func (f *goFile) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if other, ok := swaps[n.Op.String()]; ok {
			f.add("operator", n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other)
		}
	case *ast.AssignStmt:
		if other, ok := swaps[n.Tok.String()]; ok {
			f.add("operator", n.TokPos, n.TokPos+token.Pos(len(n.Tok.String())), other)
		}
	case *ast.Ident:
		if other, ok := swaps[n.Name]; ok {
			f.replace("operator", n, other)
		}
	case *ast.BasicLit:
		f.number(n)
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.negate(n.Cond)
	case *ast.SwitchStmt:
		f.cases(n)
	case *ast.TypeSwitchStmt:
		f.clauses(n.Body)
	case *ast.SelectStmt:
		f.clauses(n.Body)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.elements(n)
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.ReturnStmt:
		f.returned(n)
	}
}

// number adds one to a constant, and makes it zero.
func (f *goFile) number(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		return
	}
	f.replace("constant", n, strconv.FormatInt(value+1, 10))
	if value != 0 {
		f.replace("constant", n, "0")
	}
}

// negate leaves out mutants that the swap of == and != makes anyway.
func (f *goFile) negate(cond ast.Expr) {
	if cond == nil || isEquality(cond) {
		return
	}
	if not, ok := cond.(*ast.UnaryExpr); ok && not.Op == token.NOT {
		f.replace("condition", cond, f.text(not.X))
		return
	}
	f.replace("condition", cond, "!("+f.text(cond)+")")
}

func isEquality(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

func (f *goFile) cases(n *ast.SwitchStmt) {
	f.clauses(n.Body)
	if n.Tag != nil {
		return
	}
	for _, s := range n.Body.List {
		for _, cond := range s.(*ast.CaseClause).List {
			f.negate(cond)
		}
	}
}

// clauses deletes one case of a switch or a select.
func (f *goFile) clauses(body *ast.BlockStmt) {
	if len(body.List) < 2 {
		return
	}
	for _, clause := range body.List {
		f.replace("case deleted", clause, "")
	}
}

// elements deletes one of several values of a case.
func (f *goFile) elements(clause *ast.CaseClause) {
	if len(clause.List) < 2 {
		return
	}
	for i, e := range clause.List {
		if i == 0 {
			f.add("case deleted", e.Pos(), clause.List[1].Pos(), "")
		} else {
			f.add("case deleted", clause.List[i-1].End(), e.End(), "")
		}
	}
}

// statements deletes statements that may be missing. Declarations must stay.
func (f *goFile) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.replace("statement deleted", s, "")
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt, *ast.ReturnStmt:
			f.replace("statement deleted", s, "")
		}
	}
}

// returned makes each result of a return the zero value of its type.
func (f *goFile) returned(n *ast.ReturnStmt) {
	var results []ast.Expr
	if fields := f.results[len(f.results)-1]; fields != nil {
		for _, field := range fields.List {
			for range max(1, len(field.Names)) {
				results = append(results, field.Type)
			}
		}
	}
	if len(results) != len(n.Results) {
		return // the results of a call are passed on, or there are none
	}
	for i, e := range n.Results {
		if other := f.zero(results[i], e); other != "" && other != f.text(e) {
			f.replace("result", e, other)
		}
	}
}

func (f *goFile) zero(result, e ast.Expr) string {
	switch t := result.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.ChanType, *ast.FuncType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if t.Len == nil {
			return "nil"
		}
	case *ast.SelectorExpr:
		if f.text(t) == "time.Duration" {
			return "0"
		}
	case *ast.Ident:
		return f.zeroOfNamed(t.Name, e)
	}
	return ""
}

func (f *goFile) zeroOfNamed(name string, e ast.Expr) string {
	switch name {
	case "error", "any":
		return "nil"
	case "string":
		return `""`
	case "int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64":
		return "0"
	case "bool":
		if constant, ok := e.(*ast.Ident); ok && swaps[constant.Name] != "" || isEquality(e) {
			return "" // the swaps change it anyway
		}
		return "!(" + f.text(e) + ")"
	}
	return ""
}
