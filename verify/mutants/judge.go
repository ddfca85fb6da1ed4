package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finding is the result of one generated mutant.
type finding struct {
	word outcome
	by   string // the test that noticed it, or the reason why none could
	err  error
}

type outcome string

const (
	killed   outcome = "killed"
	hung     outcome = "hung" // a test did not end: noticed, but with a bad message
	survived outcome = "survived"
)

// judge runs the tests that cover a change, with the change in place, until one fails twice.
func (g *generator) judge(c change) finding {
	regions, err := g.product.regionsOf(&c)
	if err != nil {
		return finding{err: err}
	}
	tests := g.coverage.covering(regions, g.longest)
	if len(tests) == 0 {
		return finding{word: survived, by: "no test runs this code"}
	}
	site, err := g.place(&c)
	if err != nil {
		return finding{err: err}
	}
	defer site.clear()
	once := ""
	for _, group := range append(g.keenest(tests), inGroups(tests, path.Dir(c.path))...) {
		v := g.try(group, site)
		if v.err != nil || v.word != survived {
			return v
		}
		once += v.by
	}
	return finding{word: survived, by: fmt.Sprintf("%d tests pass%s", len(tests), once)}
}

// site is the tree in which the tests of a mutant are built, and how they learn of the mutant.
type site struct {
	dir   string
	env   string
	build func(pkg string) error
	clear func()
}

// place finds a mutant in the shared tree, or makes a tree for it.
func (g *generator) place(c *change) (site, error) {
	if n, ok := g.numbers[c.identity()]; ok {
		return site{g.dir, fmt.Sprintf("%s=%d", chosenBy, n), func(pkg string) error { return g.builds[pkg]() }, func() {}}, nil
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return site{}, err
	}
	src, err := os.ReadFile(filepath.Join(g.product.root, c.path))
	if err != nil {
		return site{}, err
	}
	overlay, err := layOver(g.product.root, map[string]string{c.path: c.apply(string(src))}, dir)
	if err != nil {
		return site{}, err
	}
	cache, err := branchBuildCache(dir)
	build := func(pkg string) error {
		binary := binaryIn(dir, pkg)
		if _, err := os.Stat(binary); err == nil {
			return nil
		}
		return g.product.build(pkg, binary, cache, "-overlay", overlay)
	}
	return site{dir, chosenBy + "=0", build, func() { _ = os.RemoveAll(dir) }}, err
}

func binaryIn(dir, pkg string) string {
	return filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test")
}

// keenest returns the few quick tests that noticed most mutants so far. They run first, because
// they notice most of the others too.
func (g *generator) keenest(tests []measured) (groups []group) {
	const most = 6
	g.mu.Lock()
	defer g.mu.Unlock()
	noticed := func(t measured) int { return g.noticed[importable(t.Package)+" "+t.Name] }
	keen := slices.DeleteFunc(slices.Clone(tests), func(t measured) bool { return noticed(t) == 0 || t.Took > time.Second })
	slices.SortStableFunc(keen, func(a, b measured) int { return noticed(b) - noticed(a) })
	for _, t := range keen[:min(most, len(keen))] {
		i := slices.IndexFunc(groups, func(g group) bool { return g.pkg == t.Package })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{pkg: t.Package})
		}
		groups[i].tests = append(groups[i].tests, t)
	}
	return groups
}

// notice counts for keenest.
func (g *generator) notice(by string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.noticed == nil {
		g.noticed = map[string]int{}
	}
	g.noticed[by]++
}

// regionsOf says where the code of a change is run from. The functions that send a Redis script run
// it.
func (p *product) regionsOf(c *change) ([]region, error) {
	if path.Ext(c.path) == ".go" {
		return []region{{c.path, c.line, c.startInLine, c.scopeLines[0], c.scopeLines[1]}}, nil
	}
	scripts, err := p.scriptsWith(c.path)
	if err != nil {
		return nil, err
	}
	return p.functionsSending(scripts)
}

// scriptsWith returns the scripts that are the given Lua file, or that include it, be it through
// another include. It names them as the code does: "mutex/acquire.lua".
func (p *product) scriptsWith(name string) ([]string, error) {
	dir := path.Dir(path.Dir(name))
	if path.Base(path.Dir(name)) != "include" {
		return []string{strings.TrimPrefix(name, dir+"/")}, nil
	}
	files, err := filepath.Glob(filepath.Join(p.root, dir, "*", "*.lua"))
	if err != nil {
		return nil, err
	}
	var scripts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !includes(string(text), strings.TrimSuffix(path.Base(name), ".lua")) {
			continue
		}
		more, err := p.scriptsWith(p.relative(file))
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, more...)
	}
	slices.Sort(scripts)
	return slices.Compact(scripts), nil
}

func includes(text, include string) bool {
	for line := range strings.Lines(text) {
		if names, ok := strings.CutPrefix(line, "-- include "); ok && slices.Contains(strings.Fields(names), include) {
			return true
		}
	}
	return false
}

// functionsSending finds the functions of Go that use the variable of a script:
// var acquireScript = newScript("mutex/acquire.lua").
func (p *product) functionsSending(scripts []string) (regions []region, err error) {
	for _, pkg := range p.packages {
		if len(pkg.EmbedFiles) == 0 {
			continue
		}
		for _, file := range pkg.GoFiles {
			name := path.Join(p.relative(pkg.Dir), file)
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			variables := variablesOf(parsed, scripts)
			for _, d := range parsed.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && mentions(fn, variables) {
					regions = append(regions, region{
						path: name, firstLine: fset.Position(fn.Pos()).Line, endLine: fset.Position(fn.End()).Line,
					})
				}
			}
		}
	}
	return regions, nil
}

func variablesOf(file *ast.File, scripts []string) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		ast.Inspect(spec, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && slices.Contains(scripts, text) {
					names = append(names, spec.Names[0].Name)
				}
			}
			return true
		})
		return false
	})
	return names
}

func mentions(fn *ast.FuncDecl, names []string) (does bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		does = does || ok && slices.Contains(names, name.Name)
		return !does
	})
	return does
}

// group is tests of one package that run together.
type group struct {
	pkg   string
	tests []measured
}

func (g group) took() (sum time.Duration) {
	for _, t := range g.tests {
		sum += t.Took
	}
	return sum
}

// inGroups puts quick tests before slow ones. Among equally quick tests, those of the package
// itself come first, and then the package with the lowest cost.
func inGroups(tests []measured, own string) (groups []group) {
	limits := []time.Duration{time.Second, 4 * time.Second, time.Hour}
	isOwn := func(g group) bool { return g.pkg == own || strings.HasPrefix(own, g.pkg+"/") }
	for i, limit := range limits {
		byPackage := map[string]*group{}
		for _, t := range tests {
			if t.Took >= limit || i > 0 && t.Took < limits[i-1] {
				continue
			}
			if byPackage[t.Package] == nil {
				byPackage[t.Package] = &group{pkg: t.Package}
			}
			byPackage[t.Package].tests = append(byPackage[t.Package].tests, t)
		}
		var level []group
		for _, g := range byPackage {
			level = append(level, *g)
		}
		slices.SortFunc(level, func(a, b group) int {
			if isOwn(a) != isOwn(b) {
				if isOwn(a) {
					return -1
				}
				return 1
			}
			return int(a.took() - b.took())
		})
		groups = append(groups, level...)
	}
	return groups
}

// try runs one group. A failure counts if it happens again, because a test that fails by chance
// notices nothing.
func (g *generator) try(tests group, at site) finding {
	if err := at.build(tests.pkg); err != nil {
		return finding{err: err}
	}
	first := g.run(tests, at)
	if first.word == survived {
		return finding{word: survived}
	}
	again := tests
	if i := slices.IndexFunc(tests.tests, func(t measured) bool { return t.Name == first.by }); i >= 0 {
		again.tests = tests.tests[i : i+1]
	}
	second := g.run(again, at)
	if second.word == survived {
		return finding{word: survived, by: ", but " + importable(tests.pkg) + " " + first.by + " failed once"}
	}
	if second.word == killed {
		g.notice(importable(tests.pkg) + " " + second.by)
	}
	return finding{word: second.word, by: importable(tests.pkg) + " " + second.by}
}

// importable is a directory in the form for go test.
func importable(dir string) string {
	if dir == "." {
		return dir
	}
	return "./" + dir
}

// Tests wait more than they compute, so many can run in parallel.
const parallel = "6"

// flags are the flags of every run of a package's tests. There are few schedules, because each
// mutant draws new ones.
func (p *product) flags(dir string) []string {
	flags := []string{"-test.parallel", parallel}
	if dir == simulation {
		flags = append(flags, "-rapid.checks=150")
	}
	return flags
}

var (
	failedTest  = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	runningTest = regexp.MustCompile(`(?m)^\t+(\w+)[^\n]* \(\d[^\n]*\)$`)
)

// run runs the tests until one fails.
func (g *generator) run(tests group, at site) finding {
	bound := min(4*tests.took()+g.slack, 4*time.Minute)
	names := make([]string, len(tests.tests))
	for i, t := range tests.tests {
		names[i] = t.Name
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound+20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binaryIn(at.dir, tests.pkg), append(g.product.flags(tests.pkg), "-test.failfast",
		"-test.timeout", bound.String(), "-test.run", "^("+strings.Join(names, "|")+")$")...)
	cmd.Env = append(os.Environ(), at.env)
	cmd.Dir, cmd.WaitDelay = filepath.Join(g.product.root, tests.pkg), time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return finding{word: hung, by: "did not even time out"}
	case bytes.Contains(out, []byte("panic: test timed out after")):
		return finding{word: hung, by: firstOf(runningTest, out)}
	case err != nil:
		return finding{word: killed, by: firstOf(failedTest, out)}
	}
	return finding{word: survived}
}

func firstOf(pattern *regexp.Regexp, out []byte) string {
	if m := pattern.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "the end of the tests" // a goroutine that was left, or a panic between tests
}
